#pragma once

/*
 * A case: model, source layout, destination layouts, topology, profile and budget, read from one
 * file. The unit of work of every command.
 *
 *   schema: refit.case/1
 *   model: deepseek-v3                # shipped name, or path of a file: see refit-model-import.h
 *   dtype: bf16                       # on the wire: a dtype, native or fp8
 *   mtp: false
 *   train:      {framework: megatron, gpus: 256, tp: 1, pp: 16, ep: 16}
 *   generation: {framework: vllm, gpus: 256, tp: 32, engines: 8}      # or a list of pools
 *   topology:   {name: dgx-h100, nodes: 64}
 *   profile: nemo-rl                  # default: refit
 *   budget: {time: 3s, staging: 2GiB} # optional
 *   failed_ranks: [3, 8-15]           # optional: GPUs that are gone
 *   only: ["*.mlp.*"]                 # optional: patterns of the tensors that move; all
 *   except: ["*.gate.weight"]         # optional: patterns of tensors that do not
 *   unknown: whole                    # optional: see refit-unknown.h
 *   note: free text                   # optional
 *
 * Ranks are GPUs of the topology. The source side takes `gpus` GPUs from 0 on, each destination
 * pool the ones after the highest of the side before it, unless a side states `first_gpu:` or
 * `ranks:` (a list of "a-b" or numbers). Destination pools share no rank with each other; they may
 * share ranks with the source. A side with a `dtype:` of its own holds the weights in that form:
 * the source casts before it sends, a destination after it has received.
 */

#include "model/case/refit-profile.h"
#include "model/layout/refit-layout.h"

G_BEGIN_DECLS

/*
 * Where shipped names are found: directories holding models/, cases/, profiles/ (as `layouts/`
 * does) and topology files. The core asks no environment and opens no file; the program fills in
 * where they are and how they are read.
 */
typedef struct _RefitStore {
    const char *layouts_dir;    /* models/NAME.yaml, cases/NAME.yaml, profiles/NAME.yaml */
    const char *topologies_dir; /* NAME.yaml */
    const RefitFiles *files;    /* borrowed as long as documents that were loaded live */
} RefitStore;

/*
 * Loads NAME or PATH. A text with a '/' or ending in .yaml, .yml or .json is a path; one that is
 * not absolute is relative to the file that `node` stands in, or to the working directory when
 * `node` is NULL or was set by an override. `kind` is "models", "cases", "profiles" or
 * "topologies". Names consist of a-z, 0-9, '-' and '.'. An unknown name is REFIT_ERROR_INVALID,
 * naming the nearest shipped one and the directory searched; the place is `node` when not NULL.
 */
RefitDoc *refit_store_load(const RefitStore *store, const char *kind, const char *name_or_path,
                           const RefitNode *node, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/*
 * The model NAME or PATH: a shipped one, or any file that refit_model_import() reads; a text ending
 * in .safetensors is a path, too.
 */
RefitModel *refit_store_load_model(const RefitStore *store, const char *name_or_path,
                                   const RefitModelOptions *options, const RefitNode *node,
                                   GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* Shipped names of a kind, sorted, NULL-terminated. Free with g_strfreev. */
char **refit_store_list(const RefitStore *store, const char *kind);

typedef struct {
    char *name; /* file name without directory and ending */
    RefitModel *model;
    RefitLayout *source;
    guint n_destinations;
    RefitLayout **destinations;
    RefitTopology *topology;
    RefitProfile *profile;
    double budget_time_s;         /* 0: none */
    guint64 budget_staging_bytes; /* 0: none */
    guint n_failed;
    guint *failed; /* ranks that neither send nor receive, ascending */
    /* Layouts of sides that hold the weights in another form than that on the wire, and the bytes
     * that form takes there; NULL where the form is the same. */
    RefitLayout *source_held;
    RefitLayout **destinations_held; /* n_destinations entries, or NULL */
} RefitCase;

#define REFIT_CASE_SOURCE G_MAXUINT
/* The layout of a side's own form: of the source or of destination `pool`. NULL: as on the wire. */
const RefitLayout *refit_case_held(const RefitCase *refit_case, guint pool);
/*
 * Per GPU of the topology: bytes it holds per byte on the wire, as a rank of the source (`sending`)
 * or of a destination; 0 where nothing is cast. It is the ratio of the whole model, which stands
 * for that of every message. Free with g_free.
 */
double *refit_case_cast_ratios(const RefitCase *refit_case, gboolean sending);

/* `overrides`: NULL-terminated "path=value" texts applied before reading, may be NULL. */
RefitCase *refit_case_load(const RefitStore *store, const char *name_or_path,
                           const char *const *overrides, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* `doc` is a refit.case/1 document; overrides already applied. Files that it names are found in
 * those of the store. */
RefitCase *refit_case_parse(const RefitStore *store, RefitDoc *doc, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
void refit_case_free(RefitCase *refit_case);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitCase, refit_case_free)

G_END_DECLS
