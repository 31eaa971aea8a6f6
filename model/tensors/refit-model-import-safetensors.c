/*
 * Headers of safetensors files.
 *
 * A file is the length of a JSON header in 8 little-endian bytes, the header, and the tensors'
 * data. Only the header is looked at: the file is mapped, not read, and may even end behind its
 * header, as it does when only that much of a large checkpoint was fetched. What the header says
 * must still hold together: data ranges follow each other without gaps or overlaps from 0 to the
 * end, and each is as long as shape and dtype say. An index lists which of several files has which
 * tensor; names and the total size must agree. Cost: linear in the headers, but for sorting ranges.
 */

#include "model/tensors/refit-model-import-private.h"

#include <string.h>

#define MAX_HEADER (100u * 1000 * 1000) /* the limit of the format */
#define LENGTH_BYTES 8u

/* One tensor's data. */
typedef struct {
    guint64 begin, end;
    const char *name;
} Range;

static gboolean refuse(const char *path, GError **error, const char *format, ...)
    G_GNUC_PRINTF(3, 4);

static gboolean refuse(const char *path, GError **error, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    g_autofree char *message = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID, "%s: %s", path, message);
    return FALSE;
}

static GBytes *map_file(const RefitFiles *files, const char *path, GError **error) {
    RefitPathKind kind = refit_files_kind(files, path);
    if (kind == REFIT_PATH_FOLDER || kind == REFIT_PATH_OTHER) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_PARSE,
                    "%s: is no file that can be mapped, but a folder, pipe or device", path);
        return NULL;
    }
    return refit_files_map(files, path, error);
}

/* ---- one tensor ---- */

static gboolean read_offset(const json_t *offsets, guint index, guint64 *offset) {
    const json_t *item = json_array_get(offsets, index);
    if (!json_is_integer(item) || json_integer_value(item) < 0) {
        return FALSE;
    }
    *offset = (guint64)json_integer_value(item);
    return TRUE;
}

static gboolean read_range(const char *path, const RefitTensor *tensor, const json_t *stated,
                           Range *range, GError **error) {
    const json_t *offsets = json_object_get(stated, "data_offsets");
    guint64 elements = 1, bytes = 0;
    g_autoptr(GError) cause = NULL;
    range->name = tensor->name;
    if (json_array_size(offsets) != 2 || !read_offset(offsets, 0, &range->begin) ||
        !read_offset(offsets, 1, &range->end) || range->begin > range->end) {
        return refuse(path, error,
                      "tensor %s: data_offsets must be two ascending numbers from 0 on",
                      tensor->name);
    }
    for (guint d = 0; d < tensor->n_dims; d++) {
        if (!refit_checked_mul(elements, tensor->shape[d], "elements", &elements, &cause)) {
            break;
        }
    }
    if (cause != NULL || !refit_dtype_bytes(tensor->dtype, elements, &bytes, &cause)) {
        g_set_error(error, REFIT_ERROR, cause->code, "%s: tensor %s: %s", path, tensor->name,
                    cause->message);
        return FALSE;
    }
    if (bytes != range->end - range->begin) {
        return refuse(path, error,
                      "tensor %s: data_offsets give %" G_GUINT64_FORMAT
                      " bytes, but shape and dtype %" G_GUINT64_FORMAT,
                      tensor->name, range->end - range->begin, bytes);
    }
    return TRUE;
}

static gint compare_ranges(gconstpointer a, gconstpointer b) {
    const Range *x = a, *y = b;
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    return x->end < y->end ? -1 : x->end > y->end ? 1 : 0;
}

/* The ranges are all of the data, each byte once. */
static gboolean check_ranges(const char *path, GArray *ranges, guint64 file_data, GError **error) {
    guint64 end = 0;
    g_array_sort(ranges, compare_ranges);
    for (guint i = 0; i < ranges->len; i++) {
        const Range *range = &g_array_index(ranges, Range, i);
        if (range->begin != end) {
            return refuse(path, error,
                          "tensor %s: data begin at %" G_GUINT64_FORMAT ", %s before them ends at "
                          "%" G_GUINT64_FORMAT "; data can neither overlap nor leave gaps",
                          range->name, range->begin,
                          i > 0 ? g_array_index(ranges, Range, i - 1).name : "the header", end);
        }
        end = range->end;
    }
    if (file_data != 0 && file_data != end) {
        return refuse(path, error,
                      "has %" G_GUINT64_FORMAT " bytes behind its header, which asks for "
                      "%" G_GUINT64_FORMAT "; is the file complete?",
                      file_data, end);
    }
    return TRUE;
}

/* ---- one file ---- */

static gboolean read_tensors(const char *path, const json_t *root, guint64 file_data,
                             RefitHeaders *headers, GError **error) {
    g_autoptr(GArray) ranges = g_array_new(FALSE, FALSE, sizeof(Range));
    const char *name = NULL;
    json_t *stated = NULL;
    json_object_foreach((json_t *)root, name, stated) {
        Range range;
        if (g_str_equal(name, "__metadata__")) {
            continue;
        }
        const RefitTensor *tensor =
            refit_headers_add(headers, path, name, stated, REFIT_N_DTYPES, error);
        if (tensor == NULL || !read_range(path, tensor, stated, &range, error)) {
            return FALSE;
        }
        g_array_append_val(ranges, range);
    }
    return check_ranges(path, ranges, file_data, error);
}

gboolean refit_safetensors_read(const RefitFiles *files, const char *path, RefitHeaders *headers,
                                GError **error) {
    g_autoptr(GBytes) file = map_file(files, path, error);
    if (file == NULL) {
        return FALSE;
    }
    const char *data = g_bytes_get_data(file, NULL);
    guint64 size = g_bytes_get_size(file), length = 0;
    if (size < LENGTH_BYTES) {
        return refuse(path, error,
                      "has %" G_GUINT64_FORMAT " bytes, fewer than the 8 of the header's length",
                      size);
    }
    for (guint i = LENGTH_BYTES; i-- > 0;) {
        length = length << 8 | (guchar)data[i];
    }
    if (length > MAX_HEADER) {
        return refuse(path, error,
                      "states a header of %" G_GUINT64_FORMAT " bytes, over the limit of %u; it is "
                      "probably no safetensors file",
                      length, MAX_HEADER);
    }
    if (length > size - LENGTH_BYTES) {
        return refuse(path, error,
                      "ends inside its header: %" G_GUINT64_FORMAT " of %" G_GUINT64_FORMAT
                      " bytes are there",
                      size - LENGTH_BYTES, length);
    }
    g_autofree char *place = g_strconcat(path, ": header", NULL);
    g_autoptr(json_t) root =
        refit_headers_read_json(data + LENGTH_BYTES, (gsize)length, place, error);
    if (root == NULL) {
        return FALSE;
    }
    if (!json_is_object(root)) {
        return refuse(path, error, "its header is not an object of tensors");
    }
    return read_tensors(path, root, size - LENGTH_BYTES - length, headers, error);
}

/* ---- an index ---- */

/* Reads each file that `weight_map` names, once, in the order of the map. */
static gboolean read_files(const RefitFiles *files, const char *path, const json_t *map,
                           RefitHeaders *headers, GHashTable *firsts, GError **error) {
    g_autofree char *folder = g_path_get_dirname(path);
    const char *name = NULL;
    json_t *value = NULL;
    json_object_foreach((json_t *)map, name, value) {
        const char *file = json_string_value(value);
        g_autofree char *excerpt = refit_error_excerpt(name);
        if (file == NULL || *file == '\0' || strchr(file, '/') != NULL ||
            !g_str_has_suffix(file, ".safetensors")) {
            return refuse(path, error,
                          "weight_map.%s: must be the name of a .safetensors file in the same "
                          "folder",
                          excerpt);
        }
        if (g_hash_table_contains(firsts, file)) {
            continue;
        }
        guint first = headers->tensors->len;
        g_autofree char *full =
            g_str_equal(folder, ".") ? g_strdup(file) : g_build_filename(folder, file, NULL);
        if (!refit_safetensors_read(files, full, headers, error)) {
            g_prefix_error(error, "%s: weight_map.%s: ", path, excerpt);
            return FALSE;
        }
        if (headers->tensors->len == first) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_NAME_MISSING,
                        "%s: weight_map.%s: %s has no such tensor, nor any other", path, excerpt,
                        file);
            return FALSE;
        }
        g_hash_table_insert(firsts, (gpointer)file, GUINT_TO_POINTER(first + 1));
    }
    return TRUE;
}

/* The map has exactly the tensors of the headers, each in its file; `firsts` has the first tensor +
 * 1 of each file. */
static gboolean check_map(const char *path, const json_t *map, const RefitHeaders *headers,
                          GHashTable *firsts, GError **error) {
    const RefitTensor *tensors = (const RefitTensor *)(gpointer)headers->tensors->data;
    g_autofree guint *first_of = g_new0(guint, headers->tensors->len + 1);
    GHashTableIter iter;
    gpointer value = NULL;
    g_hash_table_iter_init(&iter, firsts);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        first_of[GPOINTER_TO_UINT(value) - 1] = GPOINTER_TO_UINT(value);
    }
    for (guint i = 1; i < headers->tensors->len; i++) {
        first_of[i] = first_of[i] != 0 ? first_of[i] : first_of[i - 1];
    }
    const char *name = NULL;
    json_t *file = NULL;
    json_object_foreach((json_t *)map, name, file) {
        guint index = GPOINTER_TO_UINT(g_hash_table_lookup(headers->by_name, name));
        guint first = GPOINTER_TO_UINT(g_hash_table_lookup(firsts, json_string_value(file)));
        if (index == 0 || first_of[index - 1] != first) {
            g_autofree char *excerpt = refit_error_excerpt(name);
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_NAME_MISSING,
                        "%s: weight_map.%s: %s has no such tensor%s", path, excerpt,
                        json_string_value(file), index != 0 ? ", but another file has" : "");
            return FALSE;
        }
    }
    for (guint i = 0; i < headers->tensors->len; i++) {
        if (json_object_get(map, tensors[i].name) == NULL) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_NAME_MISSING,
                        "%s: weight_map: tensor %s of the files is not in the map", path,
                        tensors[i].name);
            return FALSE;
        }
    }
    return TRUE;
}

/* A whole number; some programs write it with a point. */
static gboolean read_total(const json_t *stated, guint64 *total_out) {
    double real = json_is_real(stated) ? json_real_value(stated) : -1;
    if (json_is_integer(stated) && json_integer_value(stated) >= 0) {
        *total_out = (guint64)json_integer_value(stated);
        return TRUE;
    }
    if (!(real >= 0 && real < (double)G_MAXUINT64) || (double)(guint64)real != real) {
        return FALSE;
    }
    *total_out = (guint64)real;
    return TRUE;
}

static gboolean check_total(const char *path, const json_t *root, const RefitHeaders *headers,
                            GError **error) {
    const json_t *stated = json_object_get(json_object_get(root, "metadata"), "total_size");
    guint64 total = 0, wanted = 0;
    if (stated == NULL) {
        return TRUE;
    }
    if (!read_total(stated, &wanted)) {
        return refuse(path, error, "metadata.total_size: is not a number of bytes");
    }
    for (guint i = 0; i < headers->tensors->len; i++) {
        const RefitTensor *tensor = &g_array_index(headers->tensors, RefitTensor, i);
        guint64 elements = 1, bytes = 0;
        for (guint d = 0; d < tensor->n_dims; d++) {
            elements *= tensor->shape[d]; /* checked with the data offsets */
        }
        if (!refit_dtype_bytes(tensor->dtype, elements, &bytes, error) ||
            !refit_checked_add(total, bytes, "bytes of the model", &total, error)) {
            return FALSE;
        }
    }
    if (wanted != total) {
        return refuse(path, error,
                      "metadata.total_size: states %" G_GUINT64_FORMAT
                      " bytes, but the tensors of the files have %" G_GUINT64_FORMAT
                      "; a file is not the one the index was written for, or the index is wrong: "
                      "then take total_size out of it",
                      wanted, total);
    }
    return TRUE;
}

gboolean refit_safetensors_index_read(const RefitFiles *files, const char *path, const json_t *root,
                                      RefitHeaders *headers, GError **error) {
    const json_t *map = json_object_get(root, "weight_map");
    g_autoptr(GHashTable) firsts = g_hash_table_new(g_str_hash, g_str_equal);
    if (!json_is_object(map) || json_object_size(map) == 0) {
        return refuse(path, error, "weight_map: must be an object of tensors and their files");
    }
    return read_files(files, path, map, headers, firsts, error) &&
           check_map(path, map, headers, firsts, error) && check_total(path, root, headers, error);
}
