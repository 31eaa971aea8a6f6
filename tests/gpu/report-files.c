/* Files are read as often as they are asked for. */

#include "report-files.h"

#include <string.h>

#define REPORTS REFIT_TEST_SOURCE_DIR "/data/reports"

enum { MOST_BYTES = 1 << 20 };

json_t *report_file_load(const char *name) {
    g_autofree char *path = g_build_filename(REPORTS, name, NULL);
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);

    g_assert_nonnull(root);
    return root;
}

static int compare_names(gconstpointer a, gconstpointer b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

GPtrArray *report_files_list(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(GDir) folder = g_dir_open(REPORTS, 0, &error);
    GPtrArray *names = g_ptr_array_new_with_free_func(g_free);

    g_assert_no_error(error);
    for (const char *name; (name = g_dir_read_name(folder)) != NULL;)
        g_ptr_array_add(names, g_strdup(name));
    g_ptr_array_sort(names, compare_names);
    g_assert_cmpuint(names->len, ==, N_REPORTS);
    return names;
}

json_t *report_file_load_number(const char *number) {
    g_autoptr(GPtrArray) names = report_files_list();

    for (guint i = 0; i < names->len; i++)
        if (g_str_has_prefix(g_ptr_array_index(names, i), number))
            return report_file_load(g_ptr_array_index(names, i));
    g_assert_not_reached();
}

static void drop(gpointer json) {
    json_decref(json);
}

GPtrArray *report_files_checks(const char *type) {
    g_autoptr(GPtrArray) names = report_files_list();
    GPtrArray *found = g_ptr_array_new_with_free_func(drop);

    for (guint i = 0; i < names->len; i++) {
        json_t *root = report_file_load(g_ptr_array_index(names, i));
        const json_t *checks = json_object_get(root, "checks");
        for (gsize k = 0; k < json_array_size(checks); k++) {
            json_t *check = json_array_get(checks, k);
            if (g_strcmp0(json_string_value(json_object_get(check, "type")), type) == 0)
                g_ptr_array_add(found, json_incref(check));
        }
        json_decref(root);
    }
    return found;
}

guint64 report_file_uint(const json_t *object, const char *key) {
    return (guint64)json_integer_value(json_object_get(object, key));
}

static guint64 bytes_of(const json_t *tensor) {
    g_autoptr(GError) error = NULL;
    const json_t *wire = json_object_get(tensor, "wire_dtype");
    guint64 shape[REFIT_MAX_DIMS], elements = 1, bytes;
    RefitDtype dtype;
    guint n_dims;

    CHECK(report_get_dtype(wire != NULL ? wire : json_object_get(tensor, "dtype"), "", &dtype,
                           &error) &&
          report_get_shape(json_object_get(tensor, "shape"), "", &n_dims, shape, &error));
    for (guint d = 0; d < n_dims; d++)
        elements *= shape[d];
    CHECK(refit_dtype_bytes(dtype, elements, &bytes, &error));
    return bytes;
}

guint64 report_file_halve(json_t *root) {
    json_t *tensors = json_object_get(root, "tensors"), *tensor = json_array_get(tensors, 0);
    json_t *shape = json_object_get(tensor, "shape");
    guint64 factor = 1;

    while (bytes_of(tensor) > MOST_BYTES) {
        json_int_t longest = 0;
        gsize dim = 0;
        for (gsize d = 0; d < json_array_size(shape); d++) {
            json_int_t extent = json_integer_value(json_array_get(shape, d));
            if (extent % 2 == 0 && extent > longest) {
                longest = extent;
                dim = d;
            }
        }
        if (longest == 0 || json_array_size(tensors) > 1)
            return 0;
        json_array_set_new(shape, dim, json_integer(longest / 2));
        factor *= 2;
    }
    return factor;
}

ProgramSet *report_file_programs(const RefitPlan *plan) {
    g_autoptr(GError) error = NULL;
    ProgramSet *set = program_set_new(plan);

    for (guint rank = 0; rank < set->n_ranks; rank++)
        if (set->programs[rank] == NULL)
            set->programs[rank] = refit_program_new(set->schedule, rank, NULL, NULL, &error);
    g_assert_no_error(error);
    return set;
}
