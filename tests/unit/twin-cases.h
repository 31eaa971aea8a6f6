#pragma once

/*
 * The twins of shipped cases in data/scaled, and the ways in which tests carry them out.
 */

#include "input-text.h"
#include "model/case/refit-case.h"

#include <string.h>

/* For qsort() and g_ptr_array_sort(). */
static inline int twin_compare_texts(gconstpointer a, gconstpointer b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names of all twins, sorted. */
static inline GPtrArray *twin_names(void) {
    static const char ending[] = ".yaml";
    g_autoptr(GError) error = NULL;
    GPtrArray *names = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(GDir) folder = g_dir_open(REFIT_TEST_SOURCE_DIR "/data/scaled", 0, &error);

    g_assert_no_error(error);
    for (const char *file; (file = g_dir_read_name(folder)) != NULL;)
        if (g_str_has_suffix(file, ending))
            g_ptr_array_add(names, g_strndup(file, strlen(file) - strlen(ending)));
    g_ptr_array_sort(names, twin_compare_texts);
    g_assert_cmpuint(names->len, >, 0);
    return names;
}

static inline char *twin_path(const char *name) {
    return g_strdup_printf(REFIT_TEST_SOURCE_DIR "/data/scaled/%s.yaml", name);
}

typedef enum {
    TWIN_AS_IT_IS,
    TWIN_SMALL_SLICES, /* chains have all their slices, of 16 bytes and more */
    TWIN_TINY_CHUNKS,  /* staging memory of 64 KiB, so turns are a few KiB */
    TWIN_N_WAYS
} TwinWay;

static inline RefitCase *twin_load(const char *name, TwinWay way) {
    g_autoptr(GError) error = NULL;
    g_autofree char *path = twin_path(name);
    RefitCase *refit_case = refit_case_load(input_store(), path, NULL, &error);

    g_assert_no_error(error);
    if (way == TWIN_SMALL_SLICES)
        refit_case->profile->slice_bytes.value = 1;
    if (way == TWIN_TINY_CHUNKS)
        refit_case->budget_staging_bytes = 64 << 10;
    return refit_case;
}
