#pragma once

/*
 * The host that a rank is on: what tells it from others, and what people call it. Shared by the
 * executor, the libraries and the program.
 */

#include <glib.h>

G_BEGIN_DECLS

enum { REFIT_HOST_NAME = 64 }; /* bytes, its end included */

typedef struct {
    guint64 id;                 /* the same on ranks of one host alone */
    char name[REFIT_HOST_NAME]; /* cut; printable */
} RefitHost;

/*
 * `stated`: its name, by which it is told apart then; NULL for the host of this process: by the
 * variable NCCL_HOSTID where it is set, else by host name and boot, as NCCL does (2.28.9,
 * misc/utils.cc:79). So two containers with host names of their own are two hosts, and one
 * NCCL_HOSTID makes them one, for NCCL as well.
 */
void refit_host_find(const char *stated, RefitHost *host_out);

G_END_DECLS
