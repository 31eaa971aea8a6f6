/*
 * What is asked of a communicator: its ncclConfig_t, checked and completed as NCCL 2.28.9 does
 * (init.cc:1804-1950), then the environment, which overrides it (init.cc:1640-1790). Fields that a
 * caller's older version does not know count as undefined; what follows a shorter struct, too. NCCL
 * reads each variable once; here all are read when the first communicator is made.
 */

#include "standin-nccl.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Where an older caller's struct ends being meaningful (init.cc:1821-1849). */
#define HAS(version, minor) ((version) >= NCCL_VERSION(2, (minor), 0))

static StandinNcclParams params;

static gint64 param(const char *name, gint64 otherwise) {
    const char *text = getenv(name);
    char *end = NULL;
    if (text == NULL || *text == '\0') {
        return otherwise;
    }
    const gint64 value = strtoll(text, &end, 0);
    return *end == '\0' ? value : otherwise; /* NCCL says so and goes on */
}

static void read_params(void) {
    params = (StandinNcclParams){
        .min_ctas = param("NCCL_MIN_CTAS", 0),
        .max_ctas = param("NCCL_MAX_CTAS", 0),
        .channels_per_net_peer = param("NCCL_NCHANNELS_PER_NET_PEER", 0),
        .min_p2p_channels = param("NCCL_MIN_P2P_NCHANNELS", 1),
        .max_p2p_channels = param("NCCL_MAX_P2P_NCHANNELS", STANDIN_MAX_CHANNELS),
        .net_chunk = param("NCCL_P2P_NET_CHUNKSIZE", 128 << 10),
        .nvlink_chunk = param("NCCL_P2P_NVL_CHUNKSIZE", 512 << 10),
        .pxn_disable = param("NCCL_PXN_DISABLE", 0),
    };
}

const StandinNcclParams *standin_nccl_params(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_params);
    return &params;
}

static gboolean is_set(int value) {
    return value != NCCL_CONFIG_UNDEF_INT;
}

static gboolean is_flag(int value) {
    return !is_set(value) || value == 0 || value == 1;
}

static void forget_newer_fields(ncclConfig_t *config) {
    const ncclConfig_t none = NCCL_CONFIG_INITIALIZER;
    const guint version = config->version;
    if (!HAS(version, 14)) {
        config->blocking = none.blocking;
    }
    if (!HAS(version, 17)) {
        config->cgaClusterSize = none.cgaClusterSize;
        config->minCTAs = none.minCTAs;
        config->maxCTAs = none.maxCTAs;
        config->netName = none.netName;
    }
    if (!HAS(version, 25)) {
        config->trafficClass = none.trafficClass;
    }
    if (!HAS(version, 27)) {
        config->collnetEnable = none.collnetEnable;
        config->CTAPolicy = none.CTAPolicy;
        config->shrinkShare = none.shrinkShare;
        config->nvlsCTAs = none.nvlsCTAs;
    }
    if (!HAS(version, 28)) {
        config->nChannelsPerNetPeer = none.nChannelsPerNetPeer;
        config->nvlinkCentricSched = none.nvlinkCentricSched;
    }
}

/* The name of a field with a value that NCCL refuses, and NULL. minCTAs alone is refused: it is
 * compared with a maxCTAs that is undefined, the smallest integer. */
static const char *wrong_field(const ncclConfig_t *config) {
    const struct {
        const char *name;
        gboolean wrong;
    } checks[] = {
        {"blocking", !is_flag(config->blocking)},
        {"cgaClusterSize", is_set(config->cgaClusterSize) && config->cgaClusterSize < 0},
        {"min/max channels", (is_set(config->minCTAs) && config->minCTAs <= 0) ||
                                 (is_set(config->maxCTAs) && config->maxCTAs <= 0) ||
                                 config->minCTAs > config->maxCTAs},
        {"splitShare", !is_flag(config->splitShare)},
        {"collnetEnable", !is_flag(config->collnetEnable)},
        {"policy", is_set(config->CTAPolicy) && (config->CTAPolicy < 0 || config->CTAPolicy > 2)},
        {"shrinkShare", !is_flag(config->shrinkShare)},
        {"nvlsCTAs", is_set(config->nvlsCTAs) && config->nvlsCTAs <= 0},
        {"nChannelsPerNetPeer", is_set(config->nChannelsPerNetPeer) &&
                                    (config->nChannelsPerNetPeer <= 0 ||
                                     config->nChannelsPerNetPeer > STANDIN_MAX_CHANNELS)},
        {"nvlinkCentricSched", !is_flag(config->nvlinkCentricSched)},
    };
    for (guint i = 0; i < G_N_ELEMENTS(checks); i++) {
        if (checks[i].wrong) {
            return checks[i].name;
        }
    }
    return NULL;
}

static void override(StandinConfig *config) {
    const StandinNcclParams *environment = standin_nccl_params();
    if (environment->min_ctas > 0) {
        config->min_ctas = (int)MIN(environment->min_ctas, STANDIN_MAX_CHANNELS);
    }
    if (environment->max_ctas > 0) {
        config->max_ctas = (int)MIN(environment->max_ctas, STANDIN_MAX_CHANNELS);
    }
    if (environment->channels_per_net_peer > 0) {
        config->channels_per_net_peer =
            (int)MIN(environment->channels_per_net_peer, STANDIN_MAX_CHANNELS);
    }
    config->min_ctas = MIN(config->min_ctas, config->max_ctas);
}

ncclResult_t standin_config_parse(const ncclConfig_t *given, StandinConfig *config_out) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

    if (given != NULL) {
        memcpy(&config, given, MIN(given->size, sizeof config));
        if (config.magic != 0xcafebeef) {
            return standin_nccl_fail(
                NULL, ncclInvalidArgument,
                "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
        }
        forget_newer_fields(&config);
    }
    const char *wrong = wrong_field(&config);
    if (wrong != NULL) {
        return standin_nccl_fail(NULL, ncclInvalidArgument, "Invalid config %s attribute value",
                                 wrong);
    }
    *config_out = (StandinConfig){
        .nonblocking = config.blocking == 0,
        .min_ctas = is_set(config.minCTAs) ? MIN(config.minCTAs, STANDIN_MAX_CHANNELS) : 1,
        .max_ctas = is_set(config.maxCTAs) ? MIN(config.maxCTAs, STANDIN_MAX_CHANNELS)
                                           : STANDIN_MAX_CHANNELS,
        .channels_per_net_peer =
            is_set(config.nChannelsPerNetPeer) ? config.nChannelsPerNetPeer : 0,
    };
    override(config_out);
    return ncclSuccess;
}
