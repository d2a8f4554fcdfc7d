/* What this very binary can open: the transports that lie in it, or that its UCX has found as modules, and their devices.
 * A component is a part of UCX (tcp, ib); one without a device here has no memory domain. */
#include "drivers/ucx/link_ucx.h"

#include <stdio.h>
#include <string.h>

#define DOMAINS_MAX 64u

typedef bool (*domain_fn)(void *user, const char *component, uct_md_h domain);

static bool component_visit(uct_component_h component, domain_fn visit, void *user)
{
    uct_md_resource_desc_t domains[DOMAINS_MAX];
    uct_component_attr_t attributes = {.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME |
                                                     UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT};
    bool more = true;
    if ((uct_component_query(component, &attributes) != UCS_OK) || (attributes.md_resource_count > DOMAINS_MAX))
        return true;
    if (attributes.md_resource_count == 0) return visit(user, attributes.name, NULL);
    attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
    attributes.md_resources = domains;
    if (uct_component_query(component, &attributes) != UCS_OK) return true;
    for (unsigned i = 0; more && (i < attributes.md_resource_count); i++) {
        uct_md_config_t *settings = NULL;
        uct_md_h domain = NULL;
        if (uct_md_config_read(component, NULL, NULL, &settings) != UCS_OK) continue;
        if (uct_md_open(component, domains[i].md_name, settings, &domain) == UCS_OK) {
            more = visit(user, attributes.name, domain);
            uct_md_close(domain);
        }
        uct_config_release(settings);
    }
    return more;
}

/* Opens the memory domains of each component, one after the other, until visit() gives false. domain NULL: the component
 * is there, and no device for it. */
static void domains_visit(domain_fn visit, void *user)
{
    uct_component_h *components = NULL;
    unsigned component_count = 0;
    if (uct_query_components(&components, &component_count) != UCS_OK) return;
    for (unsigned i = 0; i < component_count; i++)
        if (!component_visit(components[i], visit, user)) break;
    uct_release_component_list(components);
}

/* ---- all of them ---- */

struct telling {
    void (*tell)(void *user, const char *transport, const char *device);
    void *user;
};

static bool domain_tell(void *user, const char *component, uct_md_h domain)
{
    const struct telling *telling = user;
    uct_tl_resource_desc_t *resources = NULL;
    unsigned resource_count = 0;
    if (domain == NULL) telling->tell(telling->user, component, "");
    else if (uct_md_query_tl_resources(domain, &resources, &resource_count) == UCS_OK) {
        for (unsigned i = 0; i < resource_count; i++)
            telling->tell(telling->user, resources[i].tl_name, resources[i].dev_name);
        uct_release_tl_resource_list(resources);
    }
    return true;
}

void gf_ucx_resources(void (*tell)(void *user, const char *transport, const char *device), void *user)
{
    struct telling telling = {tell, user};
    gf_ucx_log_hush(true);
    domains_visit(domain_tell, &telling);
    gf_ucx_log_hush(false);
}

/* ---- one that is missing ---- */

/* Which component of UCX has the transports that are not in every link, and which link has that. */
static const struct family {
    unsigned kind;
    const char *component, *link;
} families[] = {
    {GF_UCX_INFINIBAND, "ib", "UCX_IB=1, or UCX_DYNAMIC=1 with UCX's InfiniBand module"},
    {GF_UCX_CUDA, "cuda", "UCX_DYNAMIC=1 with a UCX built for CUDA"},
};

struct search {
    const struct family *family;
    bool component, device;
};

static bool family_look(void *user, const char *component, uct_md_h domain)
{
    struct search *search = user;
    if (strncmp(component, search->family->component, strlen(search->family->component)) != 0) return true;
    search->component = true;
    search->device = search->device || (domain != NULL);
    return !search->device;
}

bool gf_ucx_missing_text(const struct gf_ucx *ucx, char *text_out, size_t text_bytes)
{
    size_t name_bytes;
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        struct search search = {.family = &families[i]};
        const char *name = gf_ucx_find(ucx->transports, families[i].kind, &name_bytes);
        if (name == NULL) continue;
        domains_visit(family_look, &search);
        if (search.device) continue;
        if (search.component)
            (void)snprintf(text_out, text_bytes, "\"%.*s\" is in this binary, but there is no device for it here",
                           (int)name_bytes, name);
        else
            (void)snprintf(text_out, text_bytes, "\"%.*s\" is not in this binary; it is in one made with %s",
                           (int)name_bytes, name, families[i].link);
        return true;
    }
    return false;
}
