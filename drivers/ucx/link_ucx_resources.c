/* Why UCX does not open a transport: it is not in this binary, or there is no device for it. A
 * component is a part of UCX (tcp, ib); one without a device here has no memory domain. */
#include "drivers/ucx/link_ucx.h"

#include <stdio.h>
#include <string.h>

#include <uct/api/uct.h>

#define DOMAINS_MAX 64u

/* Which component of UCX has the transports that are not in every link, and which link has that. */
static const struct family {
    unsigned kind;
    const char *component, *link;
} families[] = {
    {GF_UCX_INFINIBAND, "ib", "UCX_IB=1, or UCX_DYNAMIC=1 with UCX's InfiniBand module"},
    {GF_UCX_CUDA, "cuda", "UCX_DYNAMIC=1 with a UCX built for CUDA"},
};

/* What this binary and this host have of a family. */
enum found { FOUND_NOTHING, FOUND_COMPONENT, FOUND_DEVICE };

static bool domain_opens(uct_component_h component, const char *domain_name)
{
    uct_md_config_t *settings = NULL;
    uct_md_h domain = NULL;
    bool opens;
    if (uct_md_config_read(component, NULL, NULL, &settings) != UCS_OK) return false;
    opens = uct_md_open(component, domain_name, settings, &domain) == UCS_OK;
    if (opens) uct_md_close(domain);
    uct_config_release(settings);
    return opens;
}

static enum found component_find(uct_component_h component, const char *name)
{
    uct_md_resource_desc_t domains[DOMAINS_MAX];
    uct_component_attr_t attributes = {.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME |
                                                     UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT};
    if (uct_component_query(component, &attributes) != UCS_OK) return FOUND_NOTHING;
    if (strncmp(attributes.name, name, strlen(name)) != 0) return FOUND_NOTHING;
    if (attributes.md_resource_count > DOMAINS_MAX) return FOUND_DEVICE;
    attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
    attributes.md_resources = domains;
    if (uct_component_query(component, &attributes) != UCS_OK) return FOUND_COMPONENT;
    for (unsigned i = 0; i < attributes.md_resource_count; i++)
        if (domain_opens(component, domains[i].md_name)) return FOUND_DEVICE;
    return FOUND_COMPONENT;
}

static enum found family_find(const struct family *family)
{
    uct_component_h *components = NULL;
    unsigned component_count = 0;
    enum found most = FOUND_NOTHING;
    gf_ucx_start();
    if (uct_query_components(&components, &component_count) != UCS_OK) return FOUND_NOTHING;
    for (unsigned i = 0; (i < component_count) && (most != FOUND_DEVICE); i++) {
        enum found found = component_find(components[i], family->component);
        if (found > most) most = found;
    }
    uct_release_component_list(components);
    return most;
}

static void unbuilt_text(const struct family *family, const char *name, size_t name_bytes,
                         char *text_out, size_t text_bytes)
{
    (void)snprintf(text_out, text_bytes,
                   "\"%.*s\" is not in this binary; it is in one made with %s", (int)name_bytes,
                   name, family->link);
}

bool gf_ucx_has_infiniband(char *text_out, size_t text_bytes)
{
    const struct family *family = &families[0];
    bool has = GF_UCX_DYNAMIC ? family_find(family) != FOUND_NOTHING : GF_UCX_IB;
    GF_ASSERT(family->kind == GF_UCX_INFINIBAND);
    if (!has)
        unbuilt_text(family, family->component, strlen(family->component), text_out, text_bytes);
    return has;
}

bool gf_ucx_missing_text(const char *transports, char *text_out, size_t text_bytes)
{
    size_t name_bytes;
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        const char *name = gf_ucx_find(transports, families[i].kind, &name_bytes);
        enum found found;
        if (name == NULL) continue;
        found = family_find(&families[i]);
        if (found == FOUND_DEVICE) continue;
        if (found == FOUND_COMPONENT)
            (void)snprintf(text_out, text_bytes,
                           "\"%.*s\" is in this binary, but there is no device for it here",
                           (int)name_bytes, name);
        else
            unbuilt_text(&families[i], name, name_bytes, text_out, text_bytes);
        return true;
    }
    return false;
}
