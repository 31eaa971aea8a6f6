#pragma once

/*
 * The hub of a rendezvous: its state, between the part that talks to connections
 * (refit-rendezvous-hub.c) and the part that decides (refit-rendezvous-exchange.c).
 */

#include "gpu/rendezvous/refit-rendezvous-private.h"

G_BEGIN_DECLS

typedef enum { REFIT_HUB_STRANGER, REFIT_HUB_MEMBER, REFIT_HUB_CLOSING } RefitHubState;

typedef struct {
    RefitWire *wire;
    RefitHubState state;
    guint rank;         /* REFIT_HUB_MEMBER */
    gint64 deadline_us; /* others; see set_deadline() */
    guint8 nonce[REFIT_NONCE_BYTES];
    char *from;
    guint place;      /* in RefitHub.connections */
    GList link;       /* of RefitHub.others, while it is no member */
    guint32 watched;  /* events that the system is asked for */
    gboolean queued;  /* in RefitHub.outgoing */
    gboolean dropped; /* in RefitHub.dropped, which frees it when nothing can meet it any more */
} RefitHubConnection;

typedef struct {
    guint world;
    char *token;
    double timeout_s, grace_s;
    GSocket *listener;
    int epoll_fd;
    gint64 accept_us;             /* not before; 0: now */
    char *accept_error;           /* why it could not; NULL: it always could */
    GPtrArray *connections;       /* in any order */
    GQueue others;                /* those that are no members, in the order of arrival */
    gint64 others_us;             /* no deadline of these is earlier */
    GPtrArray *outgoing;          /* connections that something was queued for in this turn */
    GPtrArray *dropped;           /* in this turn */
    RefitHubConnection **members; /* per rank; NULL: not there */
    char **hosts;                 /* per rank; NULL: not known */
    gboolean several_hosts;
    guint n_staying; /* members that have not left */
    /* Exchange under way */
    guint32 number;
    RefitExchangeOperation operation;
    char *what;
    gsize size;
    GBytes **records; /* per rank */
    guint n_here, first;
    double wait_s;      /* that the first to come allows for it */
    gint64 deadline_us; /* 0: nobody waits */
    /* Per rank: said why it failed; its connection closed; said that it is there; left */
    guint8 *failed, *gone, *answers, *left;
    GError *failure;       /* the first, prefixed with its rank */
    GPtrArray *complaints; /* of others, as texts; only some are kept */
    guint n_failed;
    guint n_answered; /* all below this rank have, or need not */
    gint64 verdict_us;
    GError *verdict;
    gint64 end_us; /* once rank 0 has left */
    GPtrArray *refusals;
    guint n_refused;
} RefitHub;

/* Queues a frame, which this turn of the hub sends; `body` may be NULL. */
void refit_hub_send(RefitHub *hub, RefitHubConnection *connection, guint8 type,
                    const GByteArray *body);
void refit_hub_send_error(RefitHub *hub, RefitHubConnection *connection, guint8 type,
                          const GError *error);

/* "rank 3", with its host where there are several. Free with g_free. */
char *refit_hub_name(const RefitHub *hub, guint rank);

/* Forgets the exchange under way. */
void refit_hub_clear_records(RefitHub *hub);
/* FALSE: not a proper frame. */
gboolean refit_hub_take_record(RefitHub *hub, guint rank, GByteArray *body);
/* Concludes the exchange when everybody has come; fails when somebody cannot come any more. */
void refit_hub_check_complete(RefitHub *hub);
/* Sends the result with what has come. */
void refit_hub_conclude(RefitHub *hub);
/* Fails, naming the ranks that have not come. */
void refit_hub_say_absent(RefitHub *hub);

/* A failure of no rank in particular: all that can be known is known. Ownership of `error` taken.
 */
void refit_hub_fail(RefitHub *hub, GError *error);
/* Ownership of `error` taken. */
void refit_hub_fail_of_rank(RefitHub *hub, guint rank, GError *error);
/* Starts the time in which members must answer, unless it runs already. */
void refit_hub_ask_all(RefitHub *hub);
gboolean refit_hub_all_answered(RefitHub *hub);
void refit_hub_send_verdict(RefitHub *hub);

G_END_DECLS
