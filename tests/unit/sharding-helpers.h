#pragma once

/* What the tests of cuts share: placements, lists as text, and what ranks hold in one line. */

#include "model/geometry/refit-geometry.h"

#include <string.h>

#define BIG (G_GUINT64_CONSTANT(1) << 62)

static const RefitPlacement replicate = {.kind = REFIT_PLACEMENT_REPLICATE};

static inline RefitPlacement chunked(guint dim, guint order) {
    return (RefitPlacement){.kind = REFIT_PLACEMENT_SHARD, .dim = dim, .order = order};
}

static inline RefitPlacement strided(guint dim, guint chunks, guint order) {
    return (RefitPlacement){.kind = REFIT_PLACEMENT_SHARD,
                            .dim = dim,
                            .split = REFIT_SPLIT_STRIDED,
                            .chunks = chunks,
                            .order = order};
}

static inline RefitPlacement listed(guint dim, RefitIntervalList **lists, guint n) {
    return (RefitPlacement){.kind = REFIT_PLACEMENT_SHARD,
                            .dim = dim,
                            .split = REFIT_SPLIT_LISTS,
                            .n_lists = n,
                            .lists = lists};
}

/* "6:7 0:2": indices in the order in which they are stored; "@5" moves on to local place 5. */
static inline RefitIntervalList *list_of(const char *text) {
    g_auto(GStrv) words = g_strsplit(text, " ", -1);
    g_autofree RefitInterval *items = g_new0(RefitInterval, g_strv_length(words) + 1);
    g_autoptr(GError) error = NULL;
    RefitIntervalList *list;
    guint64 at = 0;
    guint n = 0;

    for (guint i = 0; words[i] != NULL; i++) {
        char *end;

        if (words[i][0] == '\0')
            continue;
        if (words[i][0] == '@') {
            at = g_ascii_strtoull(words[i] + 1, NULL, 10);
            continue;
        }
        items[n].lo = g_ascii_strtoull(words[i], &end, 10);
        items[n].hi = g_ascii_strtoull(end + 1, NULL, 10);
        items[n].at = at;
        at += items[n].hi - items[n].lo;
        n++;
    }
    list = refit_interval_list_new(items, n, &error);
    g_assert_no_error(error);
    return list;
}

static inline void assert_list(const RefitIntervalList *list, const char *expected) {
    g_autoptr(RefitIntervalList) other = list_of(expected);

    if (!refit_interval_list_equal(list, other)) {
        for (guint i = 0; i < list->n; i++)
            g_test_message("[%" G_GUINT64_FORMAT ", %" G_GUINT64_FORMAT ") at %" G_GUINT64_FORMAT,
                           list->items[i].lo, list->items[i].hi, list->items[i].at);
        g_test_fail_printf("expected %s", expected);
    }
}

/* One part over ranks 0, 1, ... */
static inline void add_part(RefitSharding *sharding, guint n_axes, const guint *sizes,
                            const RefitPlacement *placements) {
    g_autoptr(GError) error = NULL;
    guint ranks[64];
    guint n = 1;
    RefitMesh *mesh;

    for (guint a = 0; a < n_axes; a++)
        n *= sizes[a];
    for (guint r = 0; r < n; r++)
        ranks[r] = r;
    mesh = refit_mesh_new(n_axes, sizes, ranks, n, &error);
    g_assert_no_error(error);
    g_assert_true(refit_sharding_add(sharding, mesh, placements, &error));
    g_assert_no_error(error);
}

static inline RefitSharding *sharding_of(guint n_axes, const guint *sizes,
                                         const RefitPlacement *placements) {
    RefitSharding *sharding = refit_sharding_new();

    add_part(sharding, n_axes, sizes, placements);
    return sharding;
}

static inline RefitHolding *hold(const RefitSharding *sharding, guint n_dims,
                                 const guint64 *shape) {
    g_autoptr(GError) error = NULL;
    RefitHolding *holding = refit_holding_new(sharding, n_dims, shape, &error);

    g_assert_no_error(error);
    return holding;
}

/* "[0:2] 0 1; [2:4] 2 3" */
static inline void assert_holding(const RefitHolding *holding, const char *expected) {
    g_autoptr(GString) text = g_string_new(NULL);

    for (guint i = 0; i < holding->n_pieces; i++) {
        g_autofree char *region = refit_region_to_string(&holding->pieces[i].region);

        g_string_append_printf(text, "%s%s", i > 0 ? "; " : "", region);
        for (guint r = 0; r < holding->pieces[i].n_ranks; r++)
            g_string_append_printf(text, " %u", holding->pieces[i].ranks[r]);
    }
    g_assert_cmpstr(text->str, ==, expected);
}

static inline void assert_held(const RefitSharding *sharding, guint n_dims, const guint64 *shape,
                               const char *expected) {
    g_autoptr(RefitHolding) holding = hold(sharding, n_dims, shape);

    assert_holding(holding, expected);
}

/* What `rank` stores of a 1-d tensor, in local order, and how long its buffer is. */
static inline void assert_local(const RefitSharding *sharding, guint rank, guint64 extent,
                                const char *expected, guint64 buffer) {
    g_autoptr(GError) error = NULL;
    g_auto(RefitRegion) region = {0};
    guint64 shape[] = {0};

    g_assert_true(
        refit_sharding_local(sharding, 0, rank, 1, (guint64[]){extent}, &region, shape, &error));
    g_assert_no_error(error);
    g_assert_cmpuint(region.n_dims, ==, 1);
    assert_list(region.dims[0], expected);
    g_assert_cmpuint(shape[0], ==, buffer);
}

static inline void assert_fails(const RefitSharding *sharding, guint n_dims, const guint64 *shape,
                                RefitError code, const char *words) {
    g_autoptr(GError) error = NULL;
    g_autoptr(GError) local_error = NULL;
    RefitRegion region = {0};
    guint64 buffer[REFIT_MAX_DIMS];
    guint rank = refit_sharding_mesh(sharding, 0)->ranks[0];

    g_assert_null(refit_holding_new(sharding, n_dims, shape, &error));
    g_assert_error(error, REFIT_ERROR, (int)code);
    g_assert_nonnull(strstr(error->message, words));
    g_assert_false(
        refit_sharding_local(sharding, 0, rank, n_dims, shape, &region, buffer, &local_error));
    g_assert_error(local_error, REFIT_ERROR, (int)code);
    g_assert_cmpstr(local_error->message, ==, error->message);
}
