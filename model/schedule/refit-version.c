/*
 * The state of a destination during updates, as two numbers per rank: landings expected and come.
 * A rank is dirty from its first landing to its last, and stays so across updates that break off,
 * because what they wrote cannot be taken back. Ranks that expect nothing hold whatever version the
 * others do. Cost: one step per landing; questions about all ranks are answered from counts.
 */

#include "model/schedule/refit-version.h"

struct _RefitVersion {
    guint n_ranks;
    guint64 *expected, *landed; /* per rank */
    gboolean *torn;             /* per rank: an earlier update broke off here */
    guint n_expecting;          /* ranks that expect anything */
    guint n_touched, n_done;    /* of those: with a landing or torn; with all landings */
    guint64 number;
};

const char *refit_serves_name(RefitServes serves) {
    static const char *const names[] = {"old", "none", "new"};

    g_return_val_if_fail((guint)serves < G_N_ELEMENTS(names), NULL);
    return names[serves];
}

RefitVersion *refit_version_new(guint n_ranks, const guint64 *landings) {
    RefitVersion *version = g_new0(RefitVersion, 1);

    version->n_ranks = n_ranks;
    version->expected = g_new0(guint64, MAX(n_ranks, 1));
    version->landed = g_new0(guint64, MAX(n_ranks, 1));
    version->torn = g_new0(gboolean, MAX(n_ranks, 1));
    for (guint rank = 0; rank < n_ranks; rank++) {
        version->expected[rank] = landings[rank];
        version->n_expecting += landings[rank] > 0 ? 1 : 0;
    }
    return version;
}

void refit_version_free(RefitVersion *version) {
    if (version == NULL)
        return;
    g_free(version->expected);
    g_free(version->landed);
    g_free(version->torn);
    g_free(version);
}

static gboolean is_whole(const RefitVersion *version) {
    return version->n_expecting > 0 && version->n_done == version->n_expecting;
}

gboolean refit_version_land(RefitVersion *version, guint rank, GError **error) {
    g_return_val_if_fail(rank < version->n_ranks, FALSE);
    if (version->landed[rank] == version->expected[rank]) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "rank %u expects %" G_GUINT64_FORMAT
                    " landings and got one more; begin the next update first",
                    rank, version->expected[rank]);
        return FALSE;
    }
    if (version->landed[rank]++ == 0 && !version->torn[rank])
        version->n_touched++;
    if (version->landed[rank] == version->expected[rank]) {
        version->torn[rank] = FALSE;
        version->n_done++;
        version->number += is_whole(version) ? 1 : 0;
    }
    return TRUE;
}

void refit_version_begin(RefitVersion *version) {
    gboolean whole = is_whole(version);

    version->n_touched = 0;
    version->n_done = 0;
    for (guint rank = 0; rank < version->n_ranks; rank++) {
        /* A rank that was done in a failed update holds a version that others do not. */
        version->torn[rank] = !whole && (version->torn[rank] || version->landed[rank] > 0);
        version->n_touched += version->torn[rank] ? 1 : 0;
        version->landed[rank] = 0;
    }
}

RefitServes refit_version_of_rank(const RefitVersion *version, guint rank) {
    g_return_val_if_fail(rank < version->n_ranks, REFIT_SERVES_NONE);
    if (version->expected[rank] == 0)
        return refit_version_of_all(version);
    if (version->landed[rank] == version->expected[rank])
        return REFIT_SERVES_NEW;
    return version->landed[rank] == 0 && !version->torn[rank] ? REFIT_SERVES_OLD
                                                              : REFIT_SERVES_NONE;
}

RefitServes refit_version_of_all(const RefitVersion *version) {
    if (is_whole(version))
        return REFIT_SERVES_NEW;
    return version->n_touched == 0 ? REFIT_SERVES_OLD : REFIT_SERVES_NONE;
}

gboolean refit_version_is_dirty(const RefitVersion *version, guint rank) {
    g_return_val_if_fail(rank < version->n_ranks, FALSE);
    return version->expected[rank] > 0 && refit_version_of_rank(version, rank) == REFIT_SERVES_NONE;
}

guint64 refit_version_number(const RefitVersion *version) {
    return version->number;
}
