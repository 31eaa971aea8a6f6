/*
 * Prints, as Markdown, how each framework holds each class of parameter: REFIT_DATA_DIR/layouts has
 * the models. Names and order come from the packing tables, the cuts from layouts of the shipped
 * models made by the generators themselves, so the page can say nothing that the code does not do.
 * One line stands for all layers, experts and models that are held alike.
 */

#include "lib/refit-disk.h"
#include "model/case/refit-case.h"
#include "model/layout/refit-view.h"

#include <stdio.h>
#include <string.h>

#define N_GPUS 8
#define N_SIDES 2

/* Sides to look at; `more` says in which words the second one differs. */
static const struct {
    const char *framework, *title, *sides[N_SIDES], *more;
} pages[] = {
    {"megatron",
     "Megatron-Core",
     {"{framework: megatron, gpus: 8, tp: 2, ep: 2, etp: 2}", NULL},
     NULL},
    {"vllm",
     "vLLM",
     {"{framework: vllm, gpus: 8, tp: 2}", "{framework: vllm, gpus: 8, tp: 2, ep: true}"},
     "with ep"},
    {"sglang",
     "SGLang",
     {"{framework: sglang, gpus: 8, tp: 2}", "{framework: sglang, gpus: 8, tp: 2, ep: 2}"},
     "with ep"},
    {"fsdp",
     "FSDP2",
     {"{framework: fsdp, gpus: 8}", "{framework: fsdp, gpus: 8, tp: 2}"},
     "with tp"},
};

/* All have experts, so that one side fits them. */
static const char *const models[] = {"qwen3-30b-a3b",     "deepseek-v3",
                                     "glm-4.5",           "mixtral-8x7b",
                                     "qwen3.5-397b-a17b", "nemotron-3-ultra-550b-a55b",
                                     "gpt-oss-120b",      "kimi-k3"};

/* One line of a table; `hub` are all names that it stands for. */
typedef struct {
    RefitRole role;
    GString *hub;
    char *parameter, *how, *cut; /* parameter: "" when the name is that of the hub */
} Row;

static void row_clear(gpointer item) {
    Row *row = item;

    g_string_free(row->hub, TRUE);
    g_free(row->parameter);
    g_free(row->how);
    g_free(row->cut);
}

static void stop(const GError *error) {
    fprintf(stderr, "framework-tables: %s\n", error->message);
    exit(1);
}

static RefitModel *load_model(const char *name) {
    g_autofree char *layouts = g_build_filename(REFIT_DATA_DIR, "layouts", NULL);
    const RefitStore store = {
        .layouts_dir = layouts, .topologies_dir = layouts, .files = &refit_disk};
    const RefitModelOptions options = {.dtype = REFIT_DTYPE_BF16};
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitDoc) doc = refit_store_load(&store, "models", name, NULL, &error);
    RefitModel *model =
        doc != NULL ? refit_model_parse(refit_doc_root(doc), &options, &error) : NULL;

    if (model == NULL)
        stop(error);
    return model;
}

static RefitLayout *make_layout(const char *side, RefitModel *model) {
    g_autofree char *text = g_strconcat("side: ", side, NULL);
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitDoc) doc = refit_doc_parse(text, strlen(text), "side", &error);
    RefitLayout *layout = doc != NULL
                              ? refit_layout_parse(refit_node_get(refit_doc_root(doc), "side"),
                                                   "side", model, 0, N_GPUS, &error)
                              : NULL;

    if (layout == NULL)
        stop(error);
    return layout;
}

/* ---- words ---- */

/* Names of a layer without their beginning, experts without their number. */
static char *short_name(const RefitTensor *tensor, const char *name) {
    GString *text = g_string_new(name);
    g_autofree char *layer = g_strdup_printf("layers.%d.", tensor->layer);
    g_autofree char *expert = g_strdup_printf("experts.%d.", tensor->expert);
    const char *at = strstr(text->str, layer);

    if (tensor->layer != REFIT_NO_LAYER && at != NULL)
        g_string_erase(text, 0, at - text->str + (gssize)strlen(layer));
    if (tensor->expert != REFIT_NO_EXPERT)
        g_string_replace(text, expert, "experts.N.", 1);
    g_string_replace(text, "#", "N", 1);
    return g_string_free(text, FALSE);
}

static char *how_text(const RefitPacking *row, const char *parameter) {
    GString *text = g_string_new(NULL);

    if (row == NULL)
        return g_string_free(text, FALSE);
    if (row->inner != REFIT_INNER_ONE)
        g_string_append(text, row->inner == REFIT_INNER_HALVES ? "gate, then up"
                                                               : "rows of gate and up taken apart");
    else if (row->pack != REFIT_PACK_OWN)
        g_string_append_printf(text, "%spart %u",
                               row->pack == REFIT_PACK_KV_GROUP ? "by KV group, " : "",
                               row->part + 1);
    if (row->values != NULL)
        g_string_append_printf(text, "%sholds %s in place of x", text->len > 0 ? ", " : "",
                               row->values);
    if (row->stacked || strchr(parameter, '#') != NULL)
        g_string_append_printf(text, "%s%s", text->len > 0 ? "; " : "",
                               row->stacked ? "a slot per expert" : "one per expert");
    if (row->transposed)
        g_string_append_printf(text, "%stransposed", text->len > 0 ? "; " : "");
    return g_string_free(text, FALSE);
}

/* What the pieces of a holding differ in. */
static char *cut_text(const RefitLayout *layout, guint index) {
    const RefitTensor *tensor = refit_model_tensor(refit_layout_model(layout), index);
    const RefitSharding *sharding = refit_layout_sharding(layout, index);
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitHolding) holding =
        refit_holding_new(sharding, tensor->n_dims, tensor->shape, &error);
    GString *text = g_string_new(NULL);
    guint n_ranks = 0;

    if (holding == NULL)
        stop(error);
    for (guint p = 0; p < holding->n_pieces; p++)
        n_ranks += holding->pieces[p].n_ranks;
    for (guint d = 0; d < tensor->n_dims; d++) {
        gboolean cut = FALSE, segments = FALSE;

        for (guint p = 0; p < holding->n_pieces; p++) {
            const RefitIntervalList *list = holding->pieces[p].region.dims[d];

            cut |= list->extent != tensor->shape[d];
            segments |= list->n > 1;
        }
        if (!cut)
            continue;
        g_string_append_printf(text, "%sdim %u%s", text->len > 0 ? " and " : "", d,
                               segments ? " by segment" : "");
    }
    if (text->len == 0)
        g_string_append(text, "whole");
    if (n_ranks < refit_layout_n_ranks(layout))
        g_string_append(text, tensor->expert != REFIT_NO_EXPERT ? ", on one ep group"
                              : n_ranks == 1                    ? ", on one rank"
                                                                : ", on one rank of each group");
    return g_string_free(text, FALSE);
}

/* ---- tables ---- */

static gboolean is_example(const RefitTensor *tensor) {
    /* Biases go with their weights, and all experts and layers are alike. */
    return tensor->role != REFIT_ROLE_VISION && tensor->expert <= 0 &&
           !g_str_has_suffix(tensor->name, ".bias");
}

/* Takes the texts of `row`; `hub` joins the names of the line that is equal but for those. */
static void add_row(GArray *rows, Row *row, const char *hub) {
    g_autofree char *quoted = g_strdup_printf("`%s`", hub);

    for (guint i = 0; i < rows->len; i++) {
        Row *known = &g_array_index(rows, Row, i);

        if (known->role != row->role || !g_str_equal(known->parameter, row->parameter) ||
            !g_str_equal(known->how, row->how) || !g_str_equal(known->cut, row->cut))
            continue;
        if (strstr(known->hub->str, quoted) == NULL)
            g_string_append_printf(known->hub, ", %s", quoted);
        row_clear(row);
        return;
    }
    g_string_append(row->hub, quoted);
    g_array_append_val(rows, *row);
}

static void add_model(GArray *rows, guint page, const RefitFramework *framework,
                      RefitModel *model) {
    g_autoptr(RefitLayout) first = make_layout(pages[page].sides[0], model);
    g_autoptr(RefitLayout) second =
        pages[page].sides[1] != NULL ? make_layout(pages[page].sides[1], model) : NULL;

    for (guint i = 0; i < refit_model_n_tensors(model); i++) {
        const RefitTensor *tensor = refit_model_tensor(model, i);
        g_autofree char *parameter = NULL;

        if (!is_example(tensor))
            continue;
        const RefitPacking *packing = refit_packing_find(framework, 0, tensor, &parameter);
        g_autofree char *hub = short_name(tensor, tensor->name);
        Row row = {.role = tensor->role,
                   .hub = g_string_new(NULL),
                   .parameter = short_name(tensor, parameter),
                   .how = how_text(packing, parameter),
                   .cut = cut_text(first, i)};
        if (g_str_equal(row.parameter, hub))
            row.parameter[0] = '\0';
        g_autofree char *more = second != NULL ? cut_text(second, i) : NULL;
        if (more != NULL && !g_str_equal(more, row.cut)) {
            char *both = g_strdup_printf("%s; %s: %s", row.cut, pages[page].more, more);
            g_free(row.cut);
            row.cut = both;
        }
        add_row(rows, &row, hub);
    }
}

static void print_packed(const GArray *rows) {
    puts("| class | cut | parameter | how | hub |\n|---|---|---|---|---|");
    for (guint role = 0; role < REFIT_N_ROLES; role++) {
        for (guint i = 0; i < rows->len; i++) {
            const Row *row = &g_array_index(rows, Row, i);

            if (row->role != role)
                continue;
            const char *quote = row->parameter[0] != '\0' ? "`" : "";
            printf("| %s | %s | %s%s%s | %s | %s |\n", refit_role_name(row->role), row->cut, quote,
                   row->parameter, quote, row->how, row->hub->str);
        }
    }
}

/* Without packings only the cut differs: the classes of each. */
static void print_plain(const GArray *rows) {
    g_autoptr(GPtrArray) done = g_ptr_array_new();

    puts("| cut | classes |\n|---|---|");
    for (guint i = 0; i < rows->len; i++) {
        const char *cut = g_array_index(rows, Row, i).cut;
        gboolean used[REFIT_N_ROLES] = {FALSE};
        const char *comma = "";

        if (g_ptr_array_find_with_equal_func(done, cut, g_str_equal, NULL))
            continue;
        g_ptr_array_add(done, (gpointer)cut);
        printf("| %s | ", cut);
        for (guint other = i; other < rows->len; other++) {
            if (g_str_equal(g_array_index(rows, Row, other).cut, cut))
                used[g_array_index(rows, Row, other).role] = TRUE;
        }
        for (guint role = 0; role < REFIT_N_ROLES; role++) {
            if (!used[role])
                continue;
            printf("%s%s", comma, refit_role_name((RefitRole)role));
            comma = ", ";
        }
        puts(" |");
    }
}

int main(void) {
    const RefitFramework *const *frameworks = refit_frameworks();
    RefitModel *loaded[G_N_ELEMENTS(models)];

    for (guint m = 0; m < G_N_ELEMENTS(models); m++)
        loaded[m] = load_model(models[m]);
    for (guint page = 0; page < G_N_ELEMENTS(pages); page++) {
        g_autoptr(GArray) rows = g_array_new(FALSE, FALSE, sizeof(Row));
        guint f = 0;

        g_array_set_clear_func(rows, row_clear);
        while (!g_str_equal(frameworks[f]->name, pages[page].framework))
            f++;
        for (guint m = 0; m < G_N_ELEMENTS(models); m++)
            add_model(rows, page, frameworks[f], loaded[m]);
        printf("\n## %s\n\nCuts of `%s`", pages[page].title, pages[page].sides[0]);
        if (pages[page].sides[1] != NULL)
            printf("; %s: `%s`", pages[page].more, pages[page].sides[1]);
        puts(".\n");
        if (frameworks[f]->packings != NULL)
            print_packed(rows);
        else
            print_plain(rows);
    }
    for (guint m = 0; m < G_N_ELEMENTS(models); m++)
        refit_model_unref(loaded[m]);
    return 0;
}
