/*
 * Where ranks are, against what is declared: what tells hosts apart, what a rank says of its GPU,
 * and what rank 0 makes of what all say, each way to be wrong beside one to be right. The library
 * that knows of NVLink fabrics is a stand-in, too.
 */

#include "gpu/executor/refit-gpu-private.h"
#include "gpu/executor/refit-host.h"
#include "standin-child.h"

#include <string.h>

enum { MANY = 72 };

/* ---- hosts ---- */

static void test_host(void) {
    RefitHost here, again, stated, other, named;
    char system[256] = "";

    g_assert_cmpint(gethostname(system, sizeof system - 1), ==, 0);
    g_unsetenv("NCCL_HOSTID");
    refit_host_find(NULL, &here);
    refit_host_find(NULL, &again);
    g_assert_true(here.id == again.id);
    g_assert_true(g_str_has_prefix(system, here.name));
    refit_host_find("node1", &stated);
    refit_host_find("node2", &other);
    g_assert_cmpstr(stated.name, ==, "node1");
    g_assert_true(stated.id != other.id && stated.id != here.id);
    refit_host_find(system, &named); /* a name alone is another identity than name and boot */
    g_assert_true(named.id != here.id);
    /* As for NCCL, the variable takes the place of both; what is stated comes first. */
    g_setenv("NCCL_HOSTID", "node1", TRUE);
    refit_host_find(NULL, &here);
    g_assert_cmpstr(here.name, ==, "node1");
    g_assert_true(here.id == stated.id);
    refit_host_find("node2", &here);
    g_assert_true(here.id == other.id);
    g_setenv("NCCL_HOSTID", "", TRUE);
    refit_host_find(NULL, &here);
    g_assert_cmpstr(here.name, ==, "without a name");
    g_unsetenv("NCCL_HOSTID");
}

static void test_host_names(void) {
    g_autofree char *accents = g_strnfill(2 * REFIT_HOST_NAME, 'x');
    RefitHost host, longer;

    for (guint i = 0; i < REFIT_HOST_NAME; i++)
        memcpy(accents + 2 * i, "\xc3\xa9", 2);
    refit_host_find(accents, &host);
    g_assert_cmpuint(strlen(host.name), ==, REFIT_HOST_NAME - 2); /* not inside of one */
    g_assert_true(g_utf8_validate(host.name, -1, NULL));
    accents[1] = '\n';
    accents[0] = 'a';
    refit_host_find(accents, &longer);
    g_assert_true(longer.id != host.id && g_str_has_prefix(longer.name, "a \xc3"));
}

/* ---- what a rank says ---- */

static void body_device(void) {
    RefitGpuPlace place;
    g_autoptr(GError) error = NULL;

    refit_gpu_place_host("node7", &place);
    CHECK(g_str_equal(place.host_name, "node7") && place.gpu[0] == '\0');
    CUDA(cudaSetDevice(2));
    CHECK(refit_gpu_place_device(2, NULL, &place, &error));
    CHECK(g_str_equal(place.gpu, "0000:02:00.0"));
    CHECK(place.n_unreachable == 2);
    CHECK(place.unreachable[0] == g_str_hash("0000:00:00.0"));
    CHECK(place.unreachable[1] == g_str_hash("0000:03:00.0"));
    refit_gpu_place_host("node7", &place);
    CHECK(refit_gpu_place_device(1, NULL, &place, &error) && place.n_unreachable == 0);
    CHECK(!refit_gpu_place_device(99, NULL, &place, &error));
    CHECK(strstr(error->message, "cudaDeviceGetPCIBusId: invalid device ordinal") != NULL);
    refit_gpu_place_host("node7", &place);
    CHECK(refit_gpu_place_device(2, "of rank 5", &place, NULL));
    CHECK(g_str_equal(place.gpu, "of rank 5") && place.n_unreachable == 0);
    CHECK(place.fabric == REFIT_GPU_FABRIC_UNKNOWN);
}

static void test_device(void) {
    child_passes(body_device, (const char *const[]){"REFIT_STANDIN_DEVICES=4",
                                                    "REFIT_STANDIN_NO_PEER=0-2,3-2,0-3",
                                                    "REFIT_STANDIN_FABRIC=0-3=5:1", NULL});
}

static void body_many_devices(void) {
    RefitGpuPlace place;

    refit_gpu_place_host(NULL, &place);
    CHECK(refit_gpu_place_device(2, NULL, &place, NULL));
    CHECK(place.n_unreachable == REFIT_GPU_UNREACHABLE); /* of 31 */
}

static void test_many_devices(void) {
    child_passes(body_many_devices, (const char *const[]){"REFIT_STANDIN_DEVICES=32",
                                                          "REFIT_STANDIN_NO_PEER=*", NULL});
}

static void body_fabric(void) {
    RefitGpuPlace place = {.gpu = "0000:01:00.0", .fabric = REFIT_GPU_FABRIC_NONE};

    refit_gpu_fabric_find(&place);
    CHECK(place.fabric == REFIT_GPU_FABRIC_KNOWN);
    CHECK(place.cluster[15] == 7 && place.cluster[0] == 0 && place.clique == 32766);
    g_strlcpy(place.gpu, "0000:02:00.0", sizeof place.gpu); /* an empty UUID */
    refit_gpu_fabric_find(&place);
    CHECK(place.fabric == REFIT_GPU_FABRIC_NONE);
    g_strlcpy(place.gpu, "0000:03:00.0", sizeof place.gpu); /* of no fabric */
    refit_gpu_fabric_find(&place);
    CHECK(place.fabric == REFIT_GPU_FABRIC_NONE);
    g_strlcpy(place.gpu, "of rank 5", sizeof place.gpu); /* of no bus */
    refit_gpu_fabric_find(&place);
    CHECK(place.fabric == REFIT_GPU_FABRIC_UNKNOWN);
    g_setenv("REFIT_STANDIN_FABRIC", "mute", TRUE);
    g_strlcpy(place.gpu, "0000:01:00.0", sizeof place.gpu);
    refit_gpu_fabric_find(&place);
    CHECK(place.fabric == REFIT_GPU_FABRIC_UNKNOWN);
}

static void test_fabric(void) {
    child_passes(body_fabric,
                 (const char *const[]){"REFIT_STANDIN_FABRIC=0-1=7:32766,2-2=0:1", NULL});
}

/* ---- what rank 0 makes of it ---- */

/* Ranks as they should be: `per_node` on each host, with `nodes_per_domain`. */
typedef struct {
    RefitGpuRank self;
    RefitGpuPlace places[MANY];
    guint nodes[MANY], domains[MANY];
} Scene;

static Scene *scene_new(guint n_ranks, guint per_node, guint nodes_per_domain) {
    Scene *scene = g_new0(Scene, 1);

    scene->self = (RefitGpuRank){.n_ranks = n_ranks,
                                 .places = scene->places,
                                 .nodes = scene->nodes,
                                 .domains = scene->domains};
    for (guint r = 0; r < n_ranks; r++) {
        g_autofree char *host = g_strdup_printf("node%u", r / per_node);

        refit_gpu_place_host(host, &scene->places[r]);
        g_snprintf(scene->places[r].gpu, REFIT_GPU_NAME, "0000:%02x:00.0", r % per_node);
        scene->nodes[r] = r / per_node;
        scene->domains[r] = scene->nodes[r] / nodes_per_domain;
    }
    return scene;
}

static void put_on(Scene *scene, guint rank, const char *host) {
    RefitGpuPlace place;

    refit_gpu_place_host(host, &place);
    scene->places[rank].host = place.host;
    memcpy(scene->places[rank].host_name, place.host_name, sizeof place.host_name);
}

/* Frees `scene`; the note is of it. */
static void accept(Scene *scene, const char *note) {
    g_autoptr(GError) error = NULL;
    g_autofree char *found = NULL;

    g_assert_true(refit_gpu_places_check(&scene->self, &found, &error));
    g_assert_no_error(error);
    g_assert_cmpstr(found, ==, note);
    g_free(scene);
}

/* The error begins so, and says that somewhere. Frees `scene`. */
static void refuse(Scene *scene, const char *begin, const char *says) {
    g_autoptr(GError) error = NULL;
    g_autofree char *found = NULL;

    g_assert_false(refit_gpu_places_check(&scene->self, &found, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_INVALID);
    if (!g_str_has_prefix(error->message, begin) || strstr(error->message, says) == NULL)
        g_error("\"%s\" is not \"%s\" and \"%s\"", error->message, begin, says);
    g_assert_cmpuint(strlen(error->message), <, REFIT_GPU_VERDICT_TEXT);
    g_free(scene);
}

static void test_right(void) {
    Scene *scene = scene_new(8, 4, 1);

    accept(scene, NULL);
    accept(scene_new(1, 1, 1), NULL);
    accept(scene_new(7, 4, 1), NULL); /* the last node is not full */
    scene = scene_new(8, 4, 1);       /* nodes that nobody declares are not compared */
    scene->self.nodes = NULL;
    for (guint r = 4; r < 8; r++) {
        put_on(scene, r, "node0");
        g_snprintf(scene->places[r].gpu, REFIT_GPU_NAME, "0000:%02x:00.0", r);
    }
    accept(scene, NULL);
}

static void test_one_gpu(void) {
    Scene *scene = scene_new(8, 4, 1);

    g_strlcpy(scene->places[6].gpu, "0000:01:00.0", REFIT_GPU_NAME); /* as rank 5 */
    refuse(scene,
           "ranks 5 and 6 are both on GPU 0000:01:00.0 of host node1, and each rank needs one of "
           "its own",
           "CUDA_VISIBLE_DEVICES");
    scene = scene_new(8, 4, 1); /* rank 1 of another host has it too, always */
    scene->self.nodes = NULL;
    g_strlcpy(scene->places[7].gpu, "0000:04:00.0", REFIT_GPU_NAME);
    accept(scene, NULL);
}

static void test_nodes(void) {
    Scene *scene = scene_new(8, 4, 1);

    for (guint r = 0; r < 8; r++) {
        put_on(scene, r, "only");
        g_snprintf(scene->places[r].gpu, REFIT_GPU_NAME, "0000:%02x:00.0", r);
    }
    refuse(scene,
           "ranks 0 and 4 are declared as GPUs of nodes 0 and 1, but are both on host only; found: "
           "1 host with 8 ranks; start 4 ranks on each host",
           "(node:1 gpu:8); hosts are told apart by NCCL_HOSTID");
    scene = scene_new(8, 4, 1);
    for (guint r = 0; r < 8; r++) {
        put_on(scene, r, r % 2 == 0 ? "even" : "odd");
        g_snprintf(scene->places[r].gpu, REFIT_GPU_NAME, "0000:%02x:00.0", r / 2);
    }
    refuse(scene,
           "ranks 0 and 1 are declared as GPUs of one node, 0, but are on hosts even and odd; "
           "found: 2 hosts with 4 ranks each, numbered in turns; ",
           "a rank is node x 4 + local rank (srun --distribution=block, mpirun --map-by slot); "
           "hosts");
    scene = scene_new(8, 4, 1);
    put_on(scene, 3, "node2");
    refuse(scene,
           "ranks 0 and 3 are declared as GPUs of one node, 0, but are on hosts node0 and node2; "
           "found: 3 hosts with 1 to 4 ranks; ",
           "start 4 ranks on each host");
    scene = scene_new(8, 8, 1); /* smaller hosts than declared */
    for (guint r = 4; r < 8; r++)
        put_on(scene, r, "node1");
    refuse(scene, "ranks 0 and 4 are declared as GPUs of one node, 0, but are on hosts",
           "(node:2 gpu:4)");
}

static void test_peers(void) {
    Scene *scene = scene_new(8, 4, 1);

    scene->places[5].n_unreachable = 1;
    scene->places[5].unreachable[0] = g_str_hash("0000:03:00.0");
    refuse(scene,
           "ranks 5 and 7 are declared in one NVLink domain, 1, but GPU 0000:01:00.0 of host node1 "
           "has no peer access to GPU 0000:03:00.0 (cudaDeviceCanAccessPeer): ",
           "NCCL_HOSTID");
    scene = scene_new(8, 4, 1); /* a GPU without a rank, and one that is in another domain */
    scene->places[5].n_unreachable = 1;
    scene->places[5].unreachable[0] = g_str_hash("0000:09:00.0");
    scene->places[0].n_unreachable = 1;
    scene->places[0].unreachable[0] = g_str_hash("0000:01:00.0");
    scene->domains[1] = 9;
    accept(scene, NULL);
    scene = scene_new(2, 2, 1); /* a number that is not to be believed */
    scene->places[0].n_unreachable = G_MAXUINT32;
    for (guint i = 0; i < REFIT_GPU_UNREACHABLE; i++)
        scene->places[0].unreachable[i] = 1;
    accept(scene, NULL);
}

static void put_fabric(Scene *scene, guint rank, guint8 cluster, guint clique) {
    scene->places[rank].fabric = REFIT_GPU_FABRIC_KNOWN;
    scene->places[rank].cluster[15] = cluster;
    scene->places[rank].clique = clique;
}

static void test_one_fabric(void) {
    Scene *scene = scene_new(72, 4, 9); /* 18 hosts, nine in each domain */

    for (guint r = 0; r < 72; r++)
        put_fabric(scene, r, r < 36 ? 1 : 2, 3);
    accept(scene, NULL);
    scene = scene_new(8, 4, 1); /* not asked for within a host */
    for (guint r = 0; r < 8; r++)
        scene->places[r].fabric = REFIT_GPU_FABRIC_NONE;
    accept(scene, NULL);
    scene = scene_new(8, 4, 1);
    for (guint r = 0; r < 8; r++)
        put_fabric(scene, r, (guint8)r, 0);
    accept(scene, NULL);
}

static void test_other_fabrics(void) {
    static const guint others[][2] = {{2, 3}, {1, 4}}; /* cluster, clique */

    for (guint i = 0; i < G_N_ELEMENTS(others); i++) {
        Scene *scene = scene_new(72, 4, 18);
        g_autofree char *says =
            g_strdup_printf("0000:02:00.0 of host node17 has cluster %030d%02u clique %u; state a "
                            "topology",
                            0, others[i][0], others[i][1]);

        for (guint r = 0; r < 72; r++)
            put_fabric(scene, r, 1, 3);
        put_fabric(scene, 70, (guint8)others[i][0], others[i][1]);
        refuse(scene,
               "ranks 0 and 70 are declared in one NVLink domain, 0, that spans hosts, but no "
               "NVLink fabric joins their GPUs: 0000:00:00.0 of host node0 has cluster "
               "00000000000000000000000000000001 clique 3, ",
               says);
    }
}

static void test_no_fabric(void) {
    Scene *scene = scene_new(8, 4, 2);

    for (guint r = 0; r < 8; r++)
        scene->places[r].fabric = REFIT_GPU_FABRIC_NONE;
    refuse(scene, "ranks 0 and 4 are declared in one NVLink domain, 0, that spans hosts, ",
           "0000:00:00.0 of host node0 has none, 0000:00:00.0 of host node1 has none; ");
    scene = scene_new(8, 4, 2); /* one alone is enough */
    scene->places[5].fabric = REFIT_GPU_FABRIC_NONE;
    refuse(scene, "ranks 5 and 0 are declared in one NVLink domain",
           "0000:01:00.0 of host node1 has none, 0000:00:00.0 of host node0 has one that is not "
           "known; ");
}

static void test_unknown_fabric(void) {
    const char *note = "NVLink domain 1 spans hosts node2 and node3; whether NVLink joins them is "
                       "not known, as the management library of the driver (NVML) does not say on "
                       "host node3";
    Scene *scene = scene_new(16, 4, 2);

    for (guint r = 0; r < 16; r++)
        put_fabric(scene, r, 1, 1);
    scene->places[12].fabric = scene->places[13].fabric = REFIT_GPU_FABRIC_UNKNOWN;
    accept(scene, note);
    scene = scene_new(16, 4, 2); /* what is known is compared all the same */
    for (guint r = 0; r < 16; r++)
        put_fabric(scene, r, 1, 1);
    scene->places[12].fabric = REFIT_GPU_FABRIC_UNKNOWN;
    put_fabric(scene, 15, 1, 2);
    refuse(scene, "ranks 8 and 15 are declared in one NVLink domain, 1", "clique 2");
}

/* ---- names ---- */

static void test_names(void) {
    Scene *scene = scene_new(8, 4, 1);
    const guint ranks[] = {1, 4, 7};
    g_autofree char *one_host = NULL, *named = NULL, *absent = NULL, *beyond = NULL,
                    *elsewhere = NULL;

    for (guint r = 4; r < 8; r++)
        put_on(scene, r, "node0");
    refit_gpu_places_heard(&scene->self);
    one_host = refit_gpu_name_ranks(&scene->self, ranks, 3);
    g_assert_cmpstr(one_host, ==, "ranks 1, 4 and 7");
    put_on(scene, 7, "node1");
    refit_gpu_places_heard(&scene->self);
    named = refit_gpu_name_ranks(&scene->self, ranks, 3);
    g_assert_cmpstr(named, ==, "ranks 1 (node0), 4 (node0) and 7 (node1)");
    memset(&scene->places[1], 0, sizeof scene->places[1]); /* it has not come */
    refit_gpu_places_heard(&scene->self);
    absent = refit_gpu_name_ranks(&scene->self, ranks, 1);
    g_assert_cmpstr(absent, ==, "rank 1");
    memset(scene->places[7].host_name, 'x', REFIT_GPU_HOST_NAME); /* what is sent may be anything */
    memset(scene->places[7].gpu, 'x', REFIT_GPU_NAME);
    refit_gpu_places_heard(&scene->self);
    g_assert_cmpuint(strlen(scene->places[7].host_name), ==, REFIT_GPU_HOST_NAME - 1);
    g_assert_cmpuint(strlen(scene->places[7].gpu), ==, REFIT_GPU_NAME - 1);
    beyond = refit_gpu_name_ranks(&scene->self, (const guint[]){G_MAXUINT}, 1);
    g_assert_cmpstr(beyond, ==, "rank 4294967295");
    scene->self.places = NULL; /* another rank than 0 */
    elsewhere = refit_gpu_name_ranks(&scene->self, &ranks[2], 1);
    g_assert_cmpstr(elsewhere, ==, "rank 7");
    g_free(scene);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/place/what-tells-hosts-apart", test_host);
    g_test_add_func("/place/names-of-hosts-are-cut-and-printable", test_host_names);
    g_test_add_func("/place/what-a-rank-says-of-its-gpu", test_device);
    g_test_add_func("/place/there-is-room-for-so-many-unreachable-gpus", test_many_devices);
    g_test_add_func("/place/the-fabric-of-a-gpu", test_fabric);
    g_test_add_func("/place/ranks-as-declared", test_right);
    g_test_add_func("/place/two-ranks-on-one-gpu", test_one_gpu);
    g_test_add_func("/place/nodes-are-hosts", test_nodes);
    g_test_add_func("/place/gpus-of-a-domain-reach-each-other", test_peers);
    g_test_add_func("/place/a-domain-of-several-hosts-is-one-fabric", test_one_fabric);
    g_test_add_func("/place/other-clusters-and-cliques-are-none", test_other_fabrics);
    g_test_add_func("/place/hosts-without-a-fabric-are-no-domain", test_no_fabric);
    g_test_add_func("/place/a-fabric-that-is-not-known-is-noted", test_unknown_fabric);
    g_test_add_func("/place/ranks-are-named-with-hosts-when-these-are-several", test_names);
    return g_test_run();
}
