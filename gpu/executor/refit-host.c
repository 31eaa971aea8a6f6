/*
 * The problem: ranks must know who shares a host, and say so in words. Method: a hash of the text
 * by which NCCL tells hosts apart, so that both see the same hosts. Cost: a small file is read.
 */

#include "gpu/executor/refit-host.h"

#include <string.h>
#include <unistd.h>

#define BOOT_ID_FILE "/proc/sys/kernel/random/boot_id"
enum { SYSTEM_NAME = 256 };

static void put_name(RefitHost *host, const char *name) {
    g_autofree char *valid = g_utf8_make_valid(name, -1);
    const char *end;

    for (char *c = valid; *c != '\0'; c++)
        if (g_ascii_iscntrl(*c))
            *c = ' ';
    g_strlcpy(host->name, valid[0] != '\0' ? valid : "without a name", sizeof host->name);
    if (!g_utf8_validate(host->name, -1, &end)) /* cut inside a character */
        host->name[end - host->name] = '\0';
}

void refit_host_find(const char *stated, RefitHost *host_out) {
    g_autoptr(GChecksum) checksum = g_checksum_new(G_CHECKSUM_SHA256);
    char name[SYSTEM_NAME] = "";
    g_autofree char *boot = NULL;
    guint8 digest[32];
    gsize size = sizeof digest;

    memset(host_out, 0, sizeof *host_out);
    if (gethostname(name, sizeof name - 1) != 0)
        name[0] = '\0';
    if (stated == NULL)
        stated = g_getenv("NCCL_HOSTID");
    if (stated == NULL && g_file_get_contents(BOOT_ID_FILE, &boot, NULL, NULL))
        g_checksum_update(checksum, (const guchar *)boot, -1);
    if (stated == NULL)
        stated = name;
    g_checksum_update(checksum, (const guchar *)stated, -1);
    g_checksum_get_digest(checksum, digest, &size);
    memcpy(&host_out->id, digest, sizeof host_out->id);
    put_name(host_out, stated);
}
