/*
 * The shipped models against published counts and against checksums of independent listings, with
 * and without MTP layers, and that no shipped file is left out.
 */

#include "test-model.h"

/*
 * Parameters and tensors are the published counts where there are any. The checksum is SHA-256 over
 * one line per tensor, in order, such as
 *
 *   model.embed_tokens.weight 151936x2560 BF16
 *
 * and was taken from a listing written by another program, which was itself compared with the
 * headers of the published safetensors files, of these models or of siblings of other sizes.
 */
typedef struct {
    const char *name;
    gboolean mtp;
    guint64 parameters;
    guint n_tensors;
    guint64 bytes;
    const char *checksum;
    const char *first, *last; /* tensors */
} Shipped;

static const Shipped shipped[] = {
    {"deepseek-v3", FALSE, 671026419200, 45395, 1342052868096,
     "70865f71b7816835bc8899f9928fe6de481a7ba92d1d58e2440bee77242350da",
     "model.embed_tokens.weight 129280x7168 BF16", "model.norm.weight 7168 BF16"},
    {"deepseek-v3", TRUE, 684489845504, 46183, 1368979721216,
     "1e41d80022aa1e66608095859920130c860abfb7889ddd1a91d26ca008efdb8a",
     "model.embed_tokens.weight 129280x7168 BF16", "model.norm.weight 7168 BF16"},
    {"glm-4.5", FALSE, 352797829024, 44189, 705595686528,
     "c9d5ff7d86e18aee4b5ba0a0430f338d3de236e5cb6af9fd93783c577704e8de",
     "model.embed_tokens.weight 151552x5120 BF16", "model.norm.weight 5120 BF16"},
    {"glm-4.5", TRUE, 358337791296, 44691, 716675611392,
     "6005f1675f64c1ecdea9c3b071407a9fead22072256cb9e82b65b6f008a6821b",
     "model.embed_tokens.weight 151552x5120 BF16", "model.norm.weight 5120 BF16"},
    {"glm-4.5-air", FALSE, 106852251264, 17925, 213704514048,
     "fa50c584366d8bbd3668c2006adafb8c9d8defbb76f76a1d0fd2dd6178da6e48",
     "model.embed_tokens.weight 151552x4096 BF16", "model.norm.weight 4096 BF16"},
    {"glm-4.5-air", TRUE, 110468824832, 18329, 220937661440,
     "3bc6556de9cf169e96cfb6d16eb764e42cd544931a3154b44a1640079610eb1c",
     "model.embed_tokens.weight 151552x4096 BF16", "model.norm.weight 4096 BF16"},
    {"gpt-oss-120b", FALSE, 116829156672, 615, 233658313344,
     "16ab1ec823caab280bde913ef956f374d5305dd468117688c99b305de3411dc9",
     "model.embed_tokens.weight 201088x2880 BF16", "model.norm.weight 2880 BF16"},
    {"kimi-k2", FALSE, 1026408232448, 69975, 2052816510976,
     "8bb14a966e374108d2c9eb061b4215220599492beb35b79d84046b73bcfdfe7a",
     "model.embed_tokens.weight 163840x7168 BF16", "model.norm.weight 7168 BF16"},
    {"kimi-k3", FALSE, 2779931837184, 249924, 5559885919232,
     "c25ce485feab49b23bb98ea8c7806fecaac90169f4c3aedfc0f25e5a345c8365",
     "language_model.model.embed_tokens.weight 163840x7168 BF16",
     "mm_projector.post_norm.weight 7168 BF16"},
    {"llama-3.1-405b", FALSE, 405853388800, 1137, 811706777600,
     "d9dfa4ac2982cb2253015a4208864c91bace83a46e02f4bcf9d4ba77beaa3736",
     "model.embed_tokens.weight 128256x16384 BF16", "model.norm.weight 16384 BF16"},
    {"llama-3.1-70b", FALSE, 70553706496, 723, 141107412992,
     "a023117a3e7ec00665b2dec85bb4f00aada3c089d95b2321a48f66bb10c8a9cb",
     "model.embed_tokens.weight 128256x8192 BF16", "model.norm.weight 8192 BF16"},
    {"llama-3.1-8b", FALSE, 8030261248, 291, 16060522496,
     "4a937a6d16c35bd5ae4e91e33d4948c3bcac0323f30b020bac5c99237fad564e",
     "model.embed_tokens.weight 128256x4096 BF16", "model.norm.weight 4096 BF16"},
    {"minimax-m2", FALSE, 228689764864, 48239, 457477079040,
     "787e67ac6c6ac842250a7e20d6ac3b0a13f672bf8216b3aa689f9d44903d951e",
     "model.embed_tokens.weight 200064x3072 BF16", "model.norm.weight 3072 BF16"},
    {"mixtral-8x7b", FALSE, 46702792704, 995, 93405585408,
     "9a4389dcf265b5c8183d165e00edb711d139edf4ec90a144f6a9967c76998926",
     "model.embed_tokens.weight 32000x4096 BF16", "model.norm.weight 4096 BF16"},
    {"nemotron-3-ultra-550b-a55b", FALSE, 549308993536, 49983, 1098618036224,
     "04e4a1ecb52015f44e62d354b5228d0c185d6616752ec3eee164b15edec1327f",
     "backbone.embeddings.weight 131072x8192 BF16", "lm_head.weight 131072x8192 BF16"},
    {"nemotron-3-ultra-550b-a55b", TRUE, 560524603904, 51023, 1121049257984,
     "cfb3805ab3581fa26a357a19706b5d7cbf61aa1a14ab687c15621b95cd55522c",
     "backbone.embeddings.weight 131072x8192 BF16",
     "mtp.layers.1.final_layernorm.weight 8192 BF16"},
    {"qwen3-235b-a22b", FALSE, 235093634560, 36945, 470187269120,
     "da56e28d30faad721e56fe0360db3797a2888b67a87b14ce40b09555e23132b1",
     "model.embed_tokens.weight 151936x4096 BF16", "model.norm.weight 4096 BF16"},
    {"qwen3-30b-a3b", FALSE, 30532122624, 18867, 61064245248,
     "3f3f31223d7eb3d48614b9f47d65805871514c90341580f6db713412fd542b11",
     "model.embed_tokens.weight 151936x2048 BF16", "model.norm.weight 2048 BF16"},
    {"qwen3-32b", FALSE, 32762123264, 707, 65524246528,
     "4f9395756d4ba17dee4aeeeb5ec2fe412697f0feeda065e099503d9dd8025741",
     "model.embed_tokens.weight 151936x5120 BF16", "model.norm.weight 5120 BF16"},
    {"qwen3-4b", FALSE, 4022468096, 398, 8044936192,
     "be55bd591f877ba675c9444457cbec10e42304f9d88ea3d46ed9100e92ead67a",
     "model.embed_tokens.weight 151936x2560 BF16", "model.norm.weight 2560 BF16"},
    {"qwen3.5-397b-a17b", FALSE, 396802360816, 1371, 793604738912,
     "27349f74f301343515a5191c36a839ae46493fe028c7036e7a2be6bcaee2a98e",
     "model.language_model.embed_tokens.weight 248320x4096 BF16",
     "model.visual.merger.norm.bias 1152 BF16"},
    {"qwen3.5-397b-a17b", TRUE, 403397928944, 2924, 806795875168,
     "d40e42b645c8b2cb416da30fd568ef0a198e797d847a6fe59cbb0f4166e431e2",
     "model.language_model.embed_tokens.weight 248320x4096 BF16",
     "model.visual.merger.norm.bias 1152 BF16"},
    {"qwen3.8-2.4t-a95b", FALSE, 2419804697984, 1590, 4839609395968,
     "e0a0fb9e2bb1321a0a3842ba5a5ba2a1878169f3d5231b80e8cf8bb33ee24ff6",
     "model.embed_tokens.weight 248320x8192 BF16", "model.norm.weight 8192 BF16"},
    {"qwen3.8-2.4t-a95b", TRUE, 2446182725504, 1609, 4892365451008,
     "d4aa91a1d6ee907264e428c4d191427ab0c2899cef017d70a8bb27efab42d17f",
     "model.embed_tokens.weight 248320x8192 BF16", "mtp.pre_fc_norm_hidden.weight 8192 BF16"},
    {"tiny", FALSE, 2544, 45, 5088,
     "1088ba828011b07a1f9abb13fd64b1ac41eac319712953e40d8c91d695d252bf",
     "model.embed_tokens.weight 32x8 BF16", "model.norm.weight 8 BF16"},
};

static void append_line(GString *line, const RefitTensor *tensor) {
    g_string_append_printf(line, "%s ", tensor->name);
    for (guint d = 0; d < tensor->n_dims; d++) {
        g_string_append_printf(line, "%s%" G_GUINT64_FORMAT, d == 0 ? "" : "x", tensor->shape[d]);
    }
    g_string_append_printf(line, " %s", refit_dtype_name(tensor->dtype));
}

static char *checksum(const RefitModel *model) {
    g_autoptr(GChecksum) sum = g_checksum_new(G_CHECKSUM_SHA256);
    g_autoptr(GString) line = g_string_new(NULL);
    for (guint i = 0; i < refit_model_n_tensors(model); i++) {
        g_string_truncate(line, 0);
        append_line(line, refit_model_tensor(model, i));
        g_string_append_c(line, '\n');
        g_checksum_update(sum, (const guchar *)line->str, (gssize)line->len);
    }
    return g_strdup(g_checksum_get_string(sum));
}

static void expect_line(const RefitModel *model, guint index, const char *expected) {
    g_autoptr(GString) line = g_string_new(NULL);
    append_line(line, refit_model_tensor(model, index));
    g_assert_cmpstr(line->str, ==, expected);
}

static void test_shipped(gconstpointer data) {
    const Shipped *want = data;
    g_autoptr(RefitModel) model = load(want->name, BF16, want->mtp);
    g_assert_cmpuint(refit_model_parameters(model), ==, want->parameters);
    g_assert_cmpuint(refit_model_n_tensors(model), ==, want->n_tensors);
    g_assert_cmpuint(refit_model_bytes(model), ==, want->bytes);
    expect_line(model, 0, want->first);
    expect_line(model, want->n_tensors - 1, want->last);
    g_autofree char *sum = checksum(model);
    g_assert_cmpstr(sum, ==, want->checksum);

    g_autoptr(GHashTable) names = g_hash_table_new(g_str_hash, g_str_equal);
    guint64 elements = 0, bytes = 0;
    for (guint i = 0; i < refit_model_n_tensors(model); i++) {
        const RefitTensor *tensor = refit_model_tensor(model, i);
        elements += tensor->elements;
        bytes += tensor->bytes;
        g_assert_true(g_hash_table_add(names, tensor->name));
        g_assert_true(want->mtp || !tensor->mtp);
    }
    g_assert_cmpuint(elements, ==, want->parameters);
    g_assert_cmpuint(bytes, ==, want->bytes);
}

/* Every file has a row. Where MTP layers exist there is one with and one without them. */
static void test_all(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(GDir) folder = g_dir_open(REFIT_SOURCE_DATA_DIR "/layouts/models", 0, &error);
    g_assert_no_error(error);
    guint n_files = 0;
    for (const char *file = g_dir_read_name(folder); file != NULL; file = g_dir_read_name(folder)) {
        if (!g_str_has_suffix(file, ".yaml")) {
            continue;
        }
        g_autofree char *name = g_strndup(file, strlen(file) - strlen(".yaml"));
        g_autoptr(RefitModel) all = load(name, BF16, TRUE);
        g_autoptr(RefitModel) main_part = load(name, BF16, FALSE);
        guint rows = 0;
        for (guint i = 0; i < G_N_ELEMENTS(shipped); i++) {
            rows += g_str_equal(shipped[i].name, name) ? 1 : 0;
        }
        gboolean has_mtp = refit_model_n_tensors(all) != refit_model_n_tensors(main_part);
        g_test_message("%s", name);
        g_assert_cmpuint(rows, ==, has_mtp ? 2 : 1);
        n_files++;
    }
    g_assert_cmpuint(n_files, >=, 18);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    for (guint i = 0; i < G_N_ELEMENTS(shipped); i++) {
        g_autofree char *path = g_strdup_printf("/model-shipped/%s%s-equals-an-independent-listing",
                                                shipped[i].name, shipped[i].mtp ? "-with-mtp" : "");
        g_test_add_data_func(path, &shipped[i], test_shipped);
    }
    g_test_add_func("/model-shipped/every-file-is-covered", test_all);
    return g_test_run();
}
