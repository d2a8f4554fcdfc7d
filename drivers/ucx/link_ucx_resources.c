/* What this very binary can open: the transports that lie in it, or that its UCX has found as modules, and their devices.
 * A component is a part of UCX (tcp, ib); one without a device here has no memory domain. */
#include "drivers/ucx/link_ucx.h"

#include <string.h>

#define DOMAINS_MAX 64u

static bool component_visit(uct_component_h component, gf_ucx_domain_fn visit, void *user)
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

void gf_ucx_domains_visit(gf_ucx_domain_fn visit, void *user)
{
    uct_component_h *components = NULL;
    unsigned component_count = 0;
    if (uct_query_components(&components, &component_count) != UCS_OK) return;
    for (unsigned i = 0; i < component_count; i++)
        if (!component_visit(components[i], visit, user)) break;
    uct_release_component_list(components);
}
