/*
 * Views of random cases: whatever the meshes, cuts, fused parameters, padding and copies, each
 * element that a rank has by any part of a sharding lies in one place of one parameter, no two
 * share a place, and parameters are as large as their elements or padded. Cases are those of
 * random-case.h; REFIT_RANDOM_SEED is the first one's seed.
 */

#include "random-case.h"
#include "test-views.h"

#define N_CASES 300

/* Elements of all parts, each counted as often as it is held. */
static guint64 elements_of_parts(const RefitLayout *layout, guint rank) {
    const RefitModel *model = refit_layout_model(layout);
    guint64 elements = 0;

    for (guint t = 0; t < refit_model_n_tensors(model); t++) {
        const RefitSharding *sharding = refit_layout_sharding(layout, t);
        const RefitTensor *tensor = refit_model_tensor(model, t);

        for (guint p = 0; sharding != NULL && p < refit_sharding_n_parts(sharding); p++) {
            g_auto(RefitRegion) region = {0};
            guint64 buffer[REFIT_MAX_DIMS];
            g_autoptr(GError) error = NULL;

            if (refit_sharding_local(sharding, p, rank, tensor->n_dims, tensor->shape, &region,
                                     buffer, &error))
                elements += refit_region_volume(&region);
            g_assert_no_error(error);
        }
    }
    return elements;
}

static void check_side(const RefitLayout *layout) {
    for (guint i = 0; i < refit_layout_n_ranks(layout); i++) {
        guint rank = refit_layout_ranks(layout)[i];
        g_autoptr(RefitRankViews) views = views_of(layout, rank);
        guint64 **maps = map_elements(layout, views), found = 0;

        for (guint p = 0; p < views->n_parameters; p++) {
            for (guint64 e = 0; e < elements_of(&views->parameters[p]); e++)
                found += maps[p][e] != UNTOUCHED ? 1 : 0;
        }
        free_maps(maps);
        g_assert_cmpuint(found, ==, elements_of_parts(layout, rank));
    }
}

static void test_random(void) {
    const char *text = g_getenv("REFIT_RANDOM_SEED");
    guint64 first = 1;

    g_assert_true(text == NULL ||
                  g_ascii_string_to_unsigned(text, 10, 0, G_MAXUINT32, &first, NULL));
    for (guint i = 0; i < N_CASES; i++) {
        g_autoptr(RandomCase) random = random_case_new((guint)first + i);
        g_autoptr(RefitCase) refit_case = random_case_build(random);

        g_test_message("seed %u", (guint)first + i);
        check_side(refit_case->source);
        for (guint d = 0; d < refit_case->n_destinations; d++)
            check_side(refit_case->destinations[d]);
    }
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/random-views/every-held-element-has-one-place", test_random);
    return g_test_run();
}
