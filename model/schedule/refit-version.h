#pragma once

/*
 * Which version of the weights a destination holds while an update lands.
 *
 * An update writes into live parameters, so between its first and its last byte a rank holds
 * neither version. A rank may serve the old version until something has landed and the new one once
 * everything has; an engine, whose ranks work together, may serve only what all of them can. An
 * update that breaks off leaves dirty ranks: they serve nothing until one has landed whole.
 */

#include "model/base/refit-error.h"

G_BEGIN_DECLS

typedef enum {
    REFIT_SERVES_OLD,  /* nothing has landed since the last whole version */
    REFIT_SERVES_NONE, /* part of an update has landed */
    REFIT_SERVES_NEW,  /* all of it has */
} RefitServes;

const char *refit_serves_name(RefitServes serves); /* "old", "none", "new"; static string */

typedef struct _RefitVersion RefitVersion;

/* `landings[r]` are expected on rank r in each update; a rank with none always serves. */
RefitVersion *refit_version_new(guint n_ranks, const guint64 *landings);
void refit_version_free(RefitVersion *version);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitVersion, refit_version_free)

/* One landing on `rank`; REFIT_ERROR_INVALID when all of its landings have come already. */
gboolean refit_version_land(RefitVersion *version, guint rank, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/*
 * Begins the next update. Where the one before was complete its version becomes the old one;
 * otherwise it counts as failed: ranks that it touched stay dirty, and all its landings are
 * expected anew, on every rank.
 */
void refit_version_begin(RefitVersion *version);

RefitServes refit_version_of_rank(const RefitVersion *version, guint rank);
/* What all ranks together may serve: new when all are, old when all are, else none. */
RefitServes refit_version_of_all(const RefitVersion *version);
/* TRUE while the rank holds a mixture of versions, and so serves nothing. */
gboolean refit_version_is_dirty(const RefitVersion *version, guint rank);
/* Updates begun and landed whole on all ranks. */
guint64 refit_version_number(const RefitVersion *version);

G_END_DECLS
