/*
 * Values are a 64-bit mix of tensor, row-major index and run, cut to the element's size: wide ones
 * differ everywhere, and of narrow ones no stretch of some bytes repeats. Elements are written
 * where the views say, by their affine maps and not by those of a plan. Cost: one mix per element.
 */

#include "cli/cli-weights.h"

#include <string.h>

/* An invertible mix whose outputs look unrelated (the finalizer of SplitMix64). */
static guint64 mix(guint64 x) {
    x += G_GUINT64_CONSTANT(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * G_GUINT64_CONSTANT(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * G_GUINT64_CONSTANT(0x94D049BB133111EB);
    return x ^ x >> 31;
}

typedef struct {
    const RefitView *view;
    guint64 strides[REFIT_MAX_DIMS]; /* of the whole tensor, in elements */
    guint64 key;
    guint bits;
    guint8 *bytes;
} Filler;

/* Multi-byte values are cut from the low end in memory order of the host. */
static void put(const Filler *filler, guint64 place, guint64 index) {
    guint64 value = mix(filler->key + index);
    guint bits = filler->bits;

    if (bits >= 8) {
        value = GUINT64_TO_LE(value);
        memcpy(filler->bytes + place * (bits / 8), &value, bits / 8);
    } else {
        guint shift = (guint)(place * bits % 8);
        guint8 mask = (guint8)(((1U << bits) - 1) << shift);
        guint8 *byte = filler->bytes + place * bits / 8;

        *byte = (guint8)((*byte & ~mask) | ((guint8)(value << shift) & mask));
    }
}

static void fill_dim(const Filler *filler, guint dim, guint64 place, guint64 index) {
    const RefitRegion *region = &filler->view->region;
    const RefitIntervalList *list;

    if (dim == region->n_dims) {
        put(filler, place, index);
        return;
    }
    list = region->dims[dim];
    for (guint i = 0; i < list->n; i++) {
        guint64 at = place + list->items[i].at * filler->view->stride[dim];
        guint64 from = index + list->items[i].lo * filler->strides[dim];

        for (guint64 n = list->items[i].hi - list->items[i].lo; n > 0; n--) {
            fill_dim(filler, dim + 1, at, from);
            at += filler->view->stride[dim];
            from += filler->strides[dim];
        }
    }
}

static void fill_view(const RefitModel *model, const RefitView *view, guint run, guint8 *bytes) {
    const RefitTensor *tensor = refit_model_tensor(model, view->tensor);
    Filler filler = {.view = view,
                     .key = mix(mix(view->tensor) + run),
                     .bits = refit_dtype_bits(tensor->dtype),
                     .bytes = bytes};
    guint64 stride = 1;

    for (guint dim = tensor->n_dims; dim-- > 0;) {
        filler.strides[dim] = stride;
        stride *= tensor->shape[dim];
    }
    fill_dim(&filler, 0, view->offset, 0);
}

void cli_weights_fill(const RefitModel *model, const RefitRankViews *views, guint parameter,
                      guint run, guint8 *bytes) {
    memset(bytes, CLI_WEIGHTS_FILLER, views->parameters[parameter].bytes);
    for (guint v = 0; v < views->n_views; v++)
        if (views->views[v].parameter == parameter)
            fill_view(model, &views->views[v], run, bytes);
}

/* Name of the tensor that has an element in byte `at`, or "padding". */
static const char *owner_of(const RefitModel *model, const RefitRankViews *views, guint parameter,
                            guint64 at) {
    gsize bytes = views->parameters[parameter].bytes;
    g_autofree guint8 *zeros = g_malloc(bytes), *ones = g_malloc(bytes);

    for (guint v = 0; v < views->n_views; v++) {
        if (views->views[v].parameter != parameter)
            continue;
        zeros[at] = 0; /* what the view leaves of both is not written */
        ones[at] = 0xFF;
        fill_view(model, &views->views[v], 0, zeros);
        fill_view(model, &views->views[v], 0, ones);
        if (zeros[at] != 0 || ones[at] != 0xFF)
            return refit_model_tensor(model, views->views[v].tensor)->name;
    }
    return "padding";
}

gboolean cli_weights_check(const RefitModel *model, const RefitRankViews *views, guint parameter,
                           guint run, const guint8 *bytes, GError **error) {
    const RefitParameter *about = &views->parameters[parameter];
    g_autofree guint8 *right = g_malloc(about->bytes + 1);
    guint64 at = 0, n_wrong = 0;

    cli_weights_fill(model, views, parameter, run, right);
    if (about->bytes == 0 || memcmp(right, bytes, about->bytes) == 0)
        return TRUE;
    for (guint64 i = about->bytes; i-- > 0;)
        if (right[i] != bytes[i]) {
            at = i;
            n_wrong++;
        }
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE,
                "run %u left %" G_GUINT64_FORMAT " wrong of %" G_GUINT64_FORMAT
                " bytes in %s: byte %" G_GUINT64_FORMAT " is 0x%02x and must be 0x%02x (%s)",
                run + 1, n_wrong, about->bytes, about->name, at, bytes[at], right[at],
                owner_of(model, views, parameter, at));
    return FALSE;
}
