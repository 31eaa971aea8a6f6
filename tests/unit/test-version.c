/*
 * Versions of a destination during updates: what may be served before, during and after, ranks that
 * expect nothing, updates that break off and their retries, landings too many.
 */

#include "model/schedule/refit-version.h"

static void land(RefitVersion *version, guint rank, guint n) {
    g_autoptr(GError) error = NULL;
    for (guint i = 0; i < n; i++)
        g_assert_true(refit_version_land(version, rank, &error));
    g_assert_no_error(error);
}

static void test_update(void) {
    static const guint64 landings[] = {2, 1};
    g_autoptr(RefitVersion) version = refit_version_new(2, landings);
    g_assert_cmpint(refit_version_of_all(version), ==, REFIT_SERVES_OLD);
    land(version, 0, 1);
    g_assert_cmpint(refit_version_of_rank(version, 0), ==, REFIT_SERVES_NONE);
    g_assert_cmpint(refit_version_of_rank(version, 1), ==, REFIT_SERVES_OLD);
    g_assert_cmpint(refit_version_of_all(version), ==, REFIT_SERVES_NONE);
    land(version, 0, 1);
    g_assert_cmpint(refit_version_of_rank(version, 0), ==, REFIT_SERVES_NEW);
    g_assert_cmpint(refit_version_of_all(version), ==, REFIT_SERVES_NONE);
    g_assert_cmpuint(refit_version_number(version), ==, 0);
    land(version, 1, 1);
    g_assert_cmpint(refit_version_of_all(version), ==, REFIT_SERVES_NEW);
    g_assert_cmpuint(refit_version_number(version), ==, 1);
    refit_version_begin(version);
    g_assert_cmpint(refit_version_of_all(version), ==, REFIT_SERVES_OLD);
    g_assert_cmpint(refit_version_of_rank(version, 0), ==, REFIT_SERVES_OLD);
}

static void test_torn(void) {
    static const guint64 landings[] = {3, 3, 3};
    g_autoptr(RefitVersion) version = refit_version_new(3, landings);
    land(version, 0, 3);
    land(version, 1, 1);
    g_assert_true(refit_version_is_dirty(version, 1));
    g_assert_false(refit_version_is_dirty(version, 2));
    refit_version_begin(version); /* breaks the update off */
    /* Rank 0 has a version that the others never got, so it is as dirty as rank 1. */
    g_assert_true(refit_version_is_dirty(version, 0));
    g_assert_true(refit_version_is_dirty(version, 1));
    g_assert_cmpint(refit_version_of_rank(version, 2), ==, REFIT_SERVES_OLD);
    g_assert_cmpint(refit_version_of_all(version), ==, REFIT_SERVES_NONE);
    refit_version_begin(version); /* nothing has landed, but it is no less torn */
    g_assert_true(refit_version_is_dirty(version, 1));
    for (guint rank = 0; rank < 3; rank++)
        land(version, rank, 3);
    g_assert_cmpint(refit_version_of_all(version), ==, REFIT_SERVES_NEW);
    g_assert_false(refit_version_is_dirty(version, 0));
    g_assert_cmpuint(refit_version_number(version), ==, 1);
}

static void test_ranks_without_landings(void) {
    static const guint64 landings[] = {1, 0};
    g_autoptr(RefitVersion) version = refit_version_new(2, landings);
    g_assert_cmpint(refit_version_of_rank(version, 1), ==, REFIT_SERVES_OLD);
    land(version, 0, 1);
    g_assert_cmpint(refit_version_of_rank(version, 1), ==, REFIT_SERVES_NEW);
    g_assert_false(refit_version_is_dirty(version, 1));
    static const guint64 none[] = {0, 0};
    g_autoptr(RefitVersion) still = refit_version_new(2, none);
    refit_version_begin(still);
    g_assert_cmpint(refit_version_of_all(still), ==, REFIT_SERVES_OLD);
    g_assert_cmpuint(refit_version_number(still), ==, 0);
}

static void test_too_many(void) {
    static const guint64 landings[] = {1, 0};
    g_autoptr(RefitVersion) version = refit_version_new(2, landings);
    land(version, 0, 1);
    for (guint rank = 0; rank < 2; rank++) {
        g_autoptr(GError) error = NULL;
        g_assert_false(refit_version_land(version, rank, &error));
        g_assert_error(error, REFIT_ERROR, REFIT_ERROR_INVALID);
    }
    g_assert_cmpint(refit_version_of_all(version), ==, REFIT_SERVES_NEW);
}

static void test_names(void) {
    g_assert_cmpstr(refit_serves_name(REFIT_SERVES_OLD), ==, "old");
    g_assert_cmpstr(refit_serves_name(REFIT_SERVES_NONE), ==, "none");
    g_assert_cmpstr(refit_serves_name(REFIT_SERVES_NEW), ==, "new");
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/version/nothing-is-served-while-an-update-lands", test_update);
    g_test_add_func("/version/a-torn-update-stays-dirty-until-one-is-whole", test_torn);
    g_test_add_func("/version/ranks-without-landings-follow-the-others",
                    test_ranks_without_landings);
    g_test_add_func("/version/landings-too-many-are-refused", test_too_many);
    g_test_add_func("/version/states-have-names", test_names);
    return g_test_run();
}
