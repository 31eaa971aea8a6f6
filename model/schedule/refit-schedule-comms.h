#pragma once

/*
 * What the communicators of a schedule are to NCCL: how many channels they may have, whom they
 * connect, and the device memory that this takes. The rules are NCCL's own, read in its source of
 * 2.27 to 2.30 (file and line in refit-schedule-comms.c are those of 2.28.9), for sends and
 * receives with NCCL's defaults.
 *
 *   channel      one thread block of NCCL's kernels. A communicator never has more of them at work
 *                than its CTAs, which the executor states as ncclConfig_t.maxCTAs; a power of two
 *   connection   what a sender and a receiver share, in one direction, on each of the channels that
 *                a pair of ranks may use. It is made when the pair first meets on the communicator
 *                and stays as long as that
 *
 * NVLink. A connection takes 10 MiB of the receiver and 2 MiB of the sender on each channel, and a
 * pair uses all channels of its communicator.
 *
 * Network. A communicator has a pool of 2 MiB per channel on each rank that receives, and one per
 * sender on the GPU whose NIC sends for it; that may be any GPU of the sender's node (PXN), so
 * every rank counts all senders of its node. A pair uses as many channels as fill a NIC.
 *
 * All communicators of a rank together stay below REFIT_SCHEDULE_COMM_CTAS, so that their kernels
 * always find room side by side on a GPU (132 multiprocessors on an H100, 148 on a B200) and none
 * waits for another: no order between communicators is needed, and no variable of the process.
 */

#include "model/schedule/refit-schedule.h"

G_BEGIN_DECLS

/* Channels of all communicators of a rank together, at most. */
#define REFIT_SCHEDULE_COMM_CTAS 96
/* Channels of an NVLink communicator, where memory permits. */
#define REFIT_SCHEDULE_NVLINK_CTAS 16
/* Connections of a rank take at most 1 / so much of a GPU's memory: 0.92 of 80 GB, 2.1 of 186 GB.
 */
#define REFIT_SCHEDULE_COMM_SHARE 87
/* Bytes per second that one channel gets out of a NIC: nccl#2409 saw about 13 GB/s with chunks of
 * 128 KiB. */
#define REFIT_SCHEDULE_CHANNEL_RATE 13e9

/* Fills ctas, per_peer and connections of the schedule, whose steps and exchanges are known. Cost:
 * exchanges. */
void refit_schedule_plan_comms(RefitSchedule *schedule);

const RefitScheduleConnections *refit_schedule_connections(const RefitSchedule *schedule,
                                                           guint rank, RefitLink link, guint comm);
/* Ranks with which `rank` exchanges messages on a communicator, ascending: to which it sends, and
 * from which it receives. Both (of guint) are emptied first. Cost: exchanges of the rank. */
void refit_schedule_comm_peers(const RefitSchedule *schedule, guint rank, RefitLink link,
                               guint comm, GArray *sends, GArray *receives);
/* Bytes of a rank's device memory that the connections of a communicator take. */
guint64 refit_schedule_comm_bytes(const RefitSchedule *schedule, guint rank, RefitLink link,
                                  guint comm);
/* Of all its communicators. */
guint64 refit_schedule_connection_bytes(const RefitSchedule *schedule, guint rank);
/* The rank for which that is most; the first of equals. */
guint refit_schedule_most_connected(const RefitSchedule *schedule);
/*
 * Channels that carry a message of so many bytes between two ranks. On NVLink few when it is
 * small: NCCL shares its channels out between all ranks of a communicator, `n_ranks`, and gives a
 * message more of them only when each would carry more than 16 MiB.
 */
guint refit_schedule_message_channels(const RefitSchedule *schedule, RefitLink link, guint n_ranks,
                                      guint64 bytes);

G_END_DECLS
