/*
 * Layouts of the system files of NCCL M2N's whole-model benchmark, as that benchmark reads them:
 *
 *   {"train": {"num_gpus": 16, "tp_size": 2, "cp_size": 1, "ep_size": 1, "dp_size": 2,
 *              "pp_size": 4, "fsdp_size": 1},
 *    "generation": {...}}
 *
 * `num_gpus` must be there; dp_size follows and the others are 1 when absent; further keys are
 * not read, and noted unless they begin with an underscore. Ranks are counted tp innermost, then
 * cp, ep, dp, and pp outermost. Layer l is on stage l * pp / layers, the embedding on the first,
 * all else outside of layers on the last. What is cut follows from names: a few matrices by rows or
 * columns over tp, experts by number over ep; everything else is replicated, and nothing minds
 * heads. In training, tp and ep lie over the same ranks, [dp, cp, tp] for one kind of weights and
 * [dp', ep] for the other, so that dp_size says nothing; in generation all five sizes multiply to
 * num_gpus, and without ep experts are cut over tp. `fsdp_size` is in such files, but the benchmark
 * does not use it, nor do we. It leaves out what does not divide; here that is an error. Cost: one
 * look-up per tensor; a mesh is built once per kind of cut and stage.
 */

#include "model/base/refit-yaml-import.h"
#include "model/layout/refit-layout-private.h"

#include <string.h>

typedef struct {
    RefitLayout *layout;
    gboolean is_train;
    guint n_layers, stage_ranks;
    guint64 n_experts;
    RefitSize tp, cp, ep, dp, pp, fsdp;
    GHashTable *made; /* Part to RefitSharding */
} M2n;

/* Where a tensor is: the axis that cuts dim `dim`, or the index of the one that has it. */
typedef enum { PART_WHOLE, PART_TP, PART_EP, PART_EP_INDEX } PartKind;

typedef struct {
    guint stage;
    PartKind kind;
    guint value; /* dim or index */
} Part;

static const char *const keys[] = {
    "system\tfile of NCCL M2N's benchmark with the sizes of both sides",
    NULL,
};

/* The dim that tp cuts, by the ending of the name. */
static const struct {
    const char *ending;
    guint dim;
} cuts[] = {
    {"q_proj.weight", 0},    {"k_proj.weight", 0},
    {"v_proj.weight", 0},    {"gate_proj.weight", 0},
    {"up_proj.weight", 0},   {"q_a_proj.weight", 0},
    {"q_b_proj.weight", 0},  {"kv_a_proj_with_mqa.weight", 0},
    {"kv_b_proj.weight", 0}, {"o_proj.weight", 1},
    {"down_proj.weight", 1}, {"embed_tokens.weight", 0},
    {"lm_head.weight", 0},
};

static guint part_hash(gconstpointer key) {
    const Part *part = key;
    return (part->stage * 4 + part->kind) * 1021 + part->value;
}

static gboolean part_equal(gconstpointer a, gconstpointer b) {
    const Part *x = a, *y = b;
    return x->stage == y->stage && x->kind == y->kind && x->value == y->value;
}

/* ---- the system file ---- */

/* The section of the side in the file that the key `system` names; `doc_out` owns it. */
static RefitNode *load_section(RefitNode *node, const char *side, RefitDoc **doc_out,
                               GError **error) {
    const char *path = NULL;
    RefitNode *system = refit_node_require(node, "system", error);
    if (system == NULL || !refit_node_string(system, &path, error))
        return NULL;
    g_autoptr(GError) cause = NULL;
    g_autoptr(RefitDoc) doc = refit_node_load(system, path, &cause);
    if (doc == NULL) {
        refit_node_error(system, (RefitError)cause->code, error, "%s", cause->message);
        return NULL;
    }
    RefitNode *root = refit_doc_root(doc);
    const char *name = g_str_has_prefix(side, "train") ? "train" : "generation";
    RefitNode *section = refit_node_require(root, name, error);
    if (section == NULL || !refit_node_expect(section, REFIT_NODE_MAPPING, error))
        return NULL;
    refit_node_consume_all(root);
    *doc_out = g_steal_pointer(&doc);
    return section;
}

/* The benchmark takes no notice of other keys, so that a misspelt size counts as 1. */
static void note_others(RefitLayout *layout, RefitNode *section) {
    static const char *const known[] = {"num_gpus", "tp_size", "cp_size",   "ep_size",
                                        "dp_size",  "pp_size", "fsdp_size", NULL};
    for (guint i = 0; i < refit_node_size(section); i++) {
        const char *key = refit_node_key_at(section, i);
        const char *nearest = refit_nearest_name(key, known);
        g_autoptr(GError) note = NULL;
        if (*key == '_' || g_strv_contains(known, key))
            continue;
        refit_yaml_key_error(
            refit_node_at(section, i), REFIT_ERROR_INVALID, &note,
            "NCCL M2N's benchmark does not read this key, nor do we%s%s%s",
            nearest != NULL ? " (did you mean \"" : "", nearest != NULL ? nearest : "",
            nearest != NULL ? "\"?)" : "; begin it with _ to say that it is a comment");
        refit_layout_add_note(layout, note->message);
    }
}

static gboolean read_gpus(RefitNode *section, guint *n_out, GError **error) {
    RefitNode *gpus = refit_node_require(section, "num_gpus", error);
    guint64 n = 0;
    if (gpus == NULL || !refit_node_uint(gpus, 1, G_MAXUINT32, &n, error))
        return FALSE;
    *n_out = (guint)n;
    return TRUE;
}

static gboolean count(RefitNode *node, const char *side, guint *n_out, GError **error) {
    g_autoptr(RefitDoc) doc = NULL;
    RefitNode *section = load_section(node, side, &doc, error);
    return section != NULL && read_gpus(section, n_out, error);
}

/* `part` ranks, a size or a product of sizes called `what`, divide the `whole` of `owner`. */
static gboolean check_divides(const RefitSize *size, guint64 part, const char *what, guint whole,
                              const char *owner, GError **error) {
    if (part <= whole && whole % part == 0)
        return TRUE;
    refit_node_error(size->place, REFIT_ERROR_INVALID, error,
                     "%s %" G_GUINT64_FORMAT " does not divide the %u GPUs of %s", what, part,
                     whole, owner);
    return FALSE;
}

static gboolean read_sizes(M2n *self, RefitNode *section, GError **error) {
    guint n_ranks = refit_layout_n_ranks(self->layout), n_gpus = 0;
    if (!read_gpus(section, &n_gpus, error) ||
        !refit_layout_read_size(section, "tp_size", 1, &self->tp, error) ||
        !refit_layout_read_size(section, "cp_size", 1, &self->cp, error) ||
        !refit_layout_read_size(section, "ep_size", 1, &self->ep, error) ||
        !refit_layout_read_size(section, "dp_size", 1, &self->dp, error) ||
        !refit_layout_read_size(section, "pp_size", 1, &self->pp, error) ||
        !refit_layout_read_size(section, "fsdp_size", 1, &self->fsdp, error))
        return FALSE;
    if (n_gpus != n_ranks) {
        refit_node_error(refit_node_get(section, "num_gpus"), REFIT_ERROR_INVALID, error,
                         "is %u, but the case gives this side %u GPUs; make them agree, or leave "
                         "gpus out of the case",
                         n_gpus, n_ranks);
        return FALSE;
    }
    if (!self->is_train) {
        RefitSize sizes[] = {self->pp, self->tp, self->cp, self->ep};
        return refit_layout_solve_dp(self->layout, section, sizes, G_N_ELEMENTS(sizes), &self->dp,
                                     error);
    }
    if (!check_divides(&self->pp, self->pp.value, "pp_size", n_ranks, "the side", error))
        return FALSE;
    guint stage = n_ranks / self->pp.value;
    guint64 inner = (guint64)self->tp.value * self->cp.value;
    if (!check_divides(&self->tp, inner, "tp_size * cp_size", stage, "a stage", error) ||
        !check_divides(&self->ep, self->ep.value, "ep_size", stage, "a stage", error))
        return FALSE;
    self->dp.value = (guint)(stage / inner);
    return TRUE;
}

/* ---- cuts ---- */

static const RefitSharding *make(M2n *self, const Part *part, GError **error) {
    guint inner = self->tp.value * self->cp.value;
    RefitPlacement cut = {.kind = REFIT_PLACEMENT_SHARD, .dim = part->value};
    guint base = part->stage * self->stage_ranks;
    guint ep_stride = self->is_train ? 1 : inner; /* training has a mesh of its own for experts */
    guint ep_inner = ep_stride * self->ep.value;
    RefitAxis whole[] = {{.size = self->stage_ranks, .stride = 1}};
    RefitAxis over_tp[] = {
        {.size = self->stage_ranks / self->tp.value, .stride = self->tp.value},
        {.size = self->tp.value, .stride = 1, .placement = cut},
    };
    RefitAxis over_ep[] = {
        {.size = self->stage_ranks / ep_inner, .stride = ep_inner},
        {.size = self->ep.value, .stride = ep_stride, .placement = cut},
        {.size = ep_stride, .stride = 1},
    };
    switch (part->kind) {
    case PART_TP:
        return refit_layout_share_part(self->layout, base, over_tp, G_N_ELEMENTS(over_tp), error);
    case PART_EP_INDEX:
        base += part->value * ep_stride;
        over_ep[1] = (RefitAxis){.size = 1, .stride = 1};
        return refit_layout_share_part(self->layout, base, over_ep, G_N_ELEMENTS(over_ep), error);
    case PART_EP:
        return refit_layout_share_part(self->layout, base, over_ep, G_N_ELEMENTS(over_ep), error);
    case PART_WHOLE:
    default:
        return refit_layout_share_part(self->layout, base, whole, G_N_ELEMENTS(whole), error);
    }
}

/* The dim that tp cuts, or -1. */
static gint cut_of(const char *name) {
    for (guint i = 0; i < G_N_ELEMENTS(cuts); i++)
        if (g_str_has_suffix(name, cuts[i].ending))
            return (gint)cuts[i].dim;
    return -1;
}

static guint stage_of(const M2n *self, const RefitTensor *tensor) {
    if (tensor->layer != REFIT_NO_LAYER)
        return (guint)((guint64)tensor->layer * self->pp.value / self->n_layers);
    return strstr(tensor->name, "embed_tokens") != NULL ? 0 : self->pp.value - 1;
}

static gboolean check_even(const RefitTensor *tensor, const RefitSize *size, guint dim,
                           GError **error) {
    if (tensor->shape[dim] % size->value == 0)
        return TRUE;
    refit_node_error(size->place, REFIT_ERROR_INVALID, error,
                     "%s %u does not divide dim %u of %s, which is %" G_GUINT64_FORMAT
                     "; NCCL M2N moves equal shards only",
                     size->name, size->value, dim, tensor->name, tensor->shape[dim]);
    return FALSE;
}

/* Experts are cut as if all of a layer were stacked along a dim in front. */
static gboolean find_part(const M2n *self, const RefitTensor *tensor, Part *part, GError **error) {
    gboolean is_expert = strstr(tensor->name, ".experts.") != NULL;
    gboolean has_ep = self->ep.value > 1;
    guint n_dims = tensor->n_dims + (tensor->expert != REFIT_NO_EXPERT ? 1 : 0);
    gint dim = cut_of(tensor->name);
    *part = (Part){.stage = stage_of(self, tensor), .kind = PART_WHOLE};
    if (n_dims < 2)
        return TRUE;
    if (is_expert && has_ep &&
        !refit_layout_check_expert(tensor, &self->ep, self->n_experts, error))
        return FALSE;
    if (is_expert && has_ep && tensor->expert != REFIT_NO_EXPERT) {
        part->kind = PART_EP_INDEX;
        part->value = (guint)((guint64)tensor->expert / (self->n_experts / self->ep.value));
        return TRUE;
    }
    if (is_expert && has_ep) {
        part->kind = PART_EP;
        return TRUE;
    }
    if (dim < 0 || (is_expert && self->is_train) || self->tp.value == 1)
        return TRUE;
    if (is_expert && tensor->expert == REFIT_NO_EXPERT)
        dim++;
    if ((guint)dim >= tensor->n_dims)
        return TRUE;
    part->kind = PART_TP;
    part->value = (guint)dim;
    return check_even(tensor, &self->tp, (guint)dim, error);
}

static gboolean place_all(M2n *self, GError **error) {
    const RefitModel *model = refit_layout_model(self->layout);
    for (guint i = 0; i < refit_model_n_tensors(model); i++) {
        const RefitTensor *tensor = refit_model_tensor(model, i);
        Part part;
        if (tensor->scale)
            continue; /* goes with its tensor */
        if (!find_part(self, tensor, &part, error))
            return FALSE;
        const RefitSharding *sharding = g_hash_table_lookup(self->made, &part);
        if (sharding == NULL) {
            sharding = make(self, &part, error);
            if (sharding == NULL)
                return FALSE;
            g_hash_table_insert(self->made, g_memdup2(&part, sizeof part), (gpointer)sharding);
        }
        refit_layout_assign(self->layout, i, sharding);
    }
    return TRUE;
}

static void summarize(const M2n *self) {
    const RefitSize *sizes[] = {&self->tp, &self->cp, &self->ep, &self->dp, &self->pp};
    static const char *const names[] = {"tp", "cp", "ep", "dp", "pp"};
    g_autoptr(GString) text = g_string_new("m2n");
    for (guint i = 0; i < G_N_ELEMENTS(sizes); i++)
        if (sizes[i]->value > 1)
            g_string_append_printf(text, " %s%u", names[i], sizes[i]->value);
    if (self->fsdp.value > 1)
        g_string_append_printf(text, " (fsdp%u is not used)", self->fsdp.value);
    refit_layout_set_summary(self->layout, g_strdup(text->str));
}

static gboolean generate(RefitLayout *layout, RefitNode *node, GError **error) {
    const RefitModel *model = refit_layout_model(layout);
    const char *side = refit_layout_side(layout);
    M2n self = {.layout = layout, .is_train = g_str_has_prefix(side, "train"), .n_layers = 1};
    g_autoptr(RefitDoc) doc = NULL;
    RefitNode *section = load_section(node, side, &doc, error);
    if (section == NULL || !refit_node_finish(node, error) || !read_sizes(&self, section, error) ||
        !refit_layout_check_experts(model, &self.ep, TRUE, error))
        return FALSE;
    note_others(layout, section);
    guint n_ranks = refit_layout_n_ranks(layout);
    self.stage_ranks = n_ranks / self.pp.value;
    self.n_experts = refit_layout_count_experts(model);
    for (guint i = 0; i < refit_model_n_tensors(model); i++)
        self.n_layers = MAX(self.n_layers, (guint)(refit_model_tensor(model, i)->layer + 1));
    g_autoptr(GHashTable) made = g_hash_table_new_full(part_hash, part_equal, g_free, NULL);
    self.made = made;
    g_autofree guint *stages = g_new(guint, n_ranks);
    for (guint i = 0; i < n_ranks; i++)
        stages[i] = i / self.stage_ranks;
    refit_layout_set_stages(layout, self.pp.value, stages);
    summarize(&self);
    return place_all(&self, error);
}

const RefitFramework refit_framework_m2n = {
    .name = "m2n",
    .summary = "the two sides of a system file of NCCL M2N's benchmark",
    .keys = keys,
    .count = count,
    .generate = generate,
};
