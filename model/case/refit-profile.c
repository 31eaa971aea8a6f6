/*
 * Profiles: the term table of refit-profile.h drives reading, overriding and naming, so a new term
 * is one row there. A file must state every term: a cost forgotten would silently be free. Cost:
 * linear in the text.
 */

#include "model/case/refit-case.h"

static const struct {
    const char *name, *meaning;
    RefitUnit unit;
} terms[] = {
#define X(suffix, key, unit, meaning) [REFIT_TERM_##suffix] = {key, meaning, unit},
    REFIT_TERM_MAP(X)
#undef X
};

typedef struct {
    const char *key;
    gsize offset;
    guint max;
} CountField;

/* The limits are far above any use; they keep derived sizes small. */
static const CountField count_fields[] = {
    {"stage_lanes", G_STRUCT_OFFSET(RefitProfile, stage_lanes), 64},
    {"slices", G_STRUCT_OFFSET(RefitProfile, slices), 1024},
    {"batches", G_STRUCT_OFFSET(RefitProfile, batches), 4096},
};

typedef struct {
    const char *key;
    gsize offset;
    RefitUnit unit;
    double most; /* at most this, and more than 0 */
    const char *limit;
} NumberField;

static const NumberField number_fields[] = {
    {"bucket_bytes", G_STRUCT_OFFSET(RefitProfile, bucket_bytes), REFIT_UNIT_BYTES, G_MAXDOUBLE,
     "a bucket needs at least one byte"},
    {"bucket_memory_percent", G_STRUCT_OFFSET(RefitProfile, bucket_memory_percent),
     REFIT_UNIT_PLAIN, 100, "a bucket takes more than 0 and at most 100 percent of GPU memory"},
    {"slice_bytes", G_STRUCT_OFFSET(RefitProfile, slice_bytes), REFIT_UNIT_BYTES, G_MAXDOUBLE,
     "a slice needs at least one byte"},
    {"stripe_bytes", G_STRUCT_OFFSET(RefitProfile, stripe_bytes), REFIT_UNIT_BYTES, G_MAXDOUBLE,
     "a stripe needs at least one byte"},
};

const char *refit_term_name(RefitTerm term) {
    return terms[term].name;
}

const char *refit_term_meaning(RefitTerm term) {
    return terms[term].meaning;
}

gboolean refit_profile_is_on(const RefitProfile *profile, RefitTerm term) {
    return !profile->off[term] && profile->terms[term].value > 0;
}

double refit_profile_value(const RefitProfile *profile, RefitTerm term) {
    return refit_profile_is_on(profile, term) ? profile->terms[term].value : 0;
}

static gboolean parse_counts(RefitNode *node, gboolean required, RefitProfile *profile,
                             GError **error) {
    for (guint i = 0; i < G_N_ELEMENTS(count_fields); i++) {
        const CountField *field = &count_fields[i];
        if (required && !refit_node_require(node, field->key, error))
            return FALSE;
        if (!refit_node_get_uint(node, field->key, 1, field->max,
                                 G_STRUCT_MEMBER_P(profile, field->offset), error))
            return FALSE;
    }
    return TRUE;
}

/* Value of `key`; absence is an error only when required. */
static gboolean parse_number(RefitNode *node, const char *key, RefitUnit unit, const char *stated,
                             RefitSourced *sourced, GError **error) {
    RefitNode *value = stated ? refit_node_get(node, key) : refit_node_require(node, key, error);
    if (!value)
        return stated != NULL;
    return refit_sourced_parse(value, unit, stated, sourced, error);
}

/* With `stated`, every key is optional and may be a bare quantity. */
static gboolean parse_numbers(RefitNode *root, RefitNode *term_node, const char *stated,
                              RefitProfile *profile, GError **error) {
    for (guint i = 0; i < REFIT_N_TERMS; i++)
        if (!parse_number(term_node, terms[i].name, terms[i].unit, stated, &profile->terms[i],
                          error))
            return FALSE;
    for (guint i = 0; i < G_N_ELEMENTS(number_fields); i++) {
        const NumberField *field = &number_fields[i];
        RefitSourced *number = G_STRUCT_MEMBER_P(profile, field->offset);
        if (!parse_number(root, field->key, field->unit, stated, number, error))
            return FALSE;
        if (number->value <= 0 || number->value > field->most) {
            refit_node_error(refit_node_get(root, field->key), REFIT_ERROR_INVALID, error, "%s",
                             field->limit);
            return FALSE;
        }
    }
    return parse_counts(root, stated == NULL, profile, error);
}

RefitProfile *refit_profile_parse(RefitNode *root, GError **error) {
    g_autoptr(RefitProfile) profile = g_new0(RefitProfile, 1);
    if (!refit_node_check_schema(root, "refit.profile/1", error))
        return NULL;
    RefitNode *name = refit_node_require(root, "name", error);
    if (!name || !refit_node_get_string(root, "name", &profile->name, error))
        return NULL;
    RefitNode *term_node = refit_node_require(root, "terms", error);
    if (!term_node || !refit_node_expect(term_node, REFIT_NODE_MAPPING, error) ||
        !parse_numbers(root, term_node, NULL, profile, error) || !refit_node_finish(root, error))
        return NULL;
    return g_steal_pointer(&profile);
}

static gboolean parse_off(RefitNode *list, RefitProfile *profile, GError **error) {
    const char *names[REFIT_N_TERMS + 1] = {NULL};
    for (guint i = 0; i < REFIT_N_TERMS; i++)
        names[i] = terms[i].name;
    if (!refit_node_expect(list, REFIT_NODE_SEQUENCE, error))
        return FALSE;
    for (guint i = 0; i < refit_node_size(list); i++) {
        guint term = 0;
        if (!refit_node_choice(refit_node_at(list, i), names, &term, error))
            return FALSE;
        profile->off[term] = TRUE;
    }
    return TRUE;
}

static RefitProfile *load(const char *name, const RefitNode *node, const RefitStore *store,
                          GError **error) {
    g_autoptr(RefitDoc) doc = refit_store_load(store, "profiles", name, node, error);
    return doc ? refit_profile_parse(refit_doc_root(doc), error) : NULL;
}

RefitProfile *refit_profile_from_case(RefitNode *node, const RefitStore *store, GError **error) {
    const char *name = REFIT_PROFILE_DEFAULT;
    if (!node)
        return load(name, NULL, store, error);
    if (refit_node_kind(node) == REFIT_NODE_SCALAR)
        return refit_node_string(node, &name, error) ? load(name, node, store, error) : NULL;
    if (!refit_node_expect(node, REFIT_NODE_MAPPING, error))
        return NULL;

    RefitNode *name_node = refit_node_get(node, "name");
    if (name_node && !refit_node_string(name_node, &name, error))
        return NULL;
    g_autoptr(RefitProfile) profile = load(name, name_node ? name_node : node, store, error);
    if (!profile)
        return NULL;
    RefitNode *off = refit_node_get(node, "off");
    if ((off && !parse_off(off, profile, error)) ||
        !parse_numbers(node, node, REFIT_SOURCE_CASE, profile, error) ||
        !refit_node_finish(node, error))
        return NULL;
    return g_steal_pointer(&profile);
}

void refit_profile_free(RefitProfile *profile) {
    if (!profile)
        return;
    for (guint i = 0; i < REFIT_N_TERMS; i++)
        refit_sourced_clear(&profile->terms[i]);
    for (guint i = 0; i < G_N_ELEMENTS(number_fields); i++)
        refit_sourced_clear(G_STRUCT_MEMBER_P(profile, number_fields[i].offset));
    g_free(profile->name);
    g_free(profile);
}
