/* link.devices: a group for each local rank, and the names of a list. */
#include "firmware-tests/support/suite.h"
#include "drivers/devices.h"
#include "lib/configuration.h"

TEST(each_place_in_the_node_has_its_group)
{
    static const struct {
        const char *asked;
        uint32_t local;
        const char *devices;
    } cases[] = {{"", 0, ""},       {"eth0", 0, "eth0"}, {"eth0", 5, "eth0"},
                 {"a,b", 3, "a,b"}, {"a;b", 0, "a"},     {"a;b", 1, "b"},
                 {"a;b", 2, "a"},   {"a,b;c", 0, "a,b"}, {"a,b;c", 1, "c"}};
    for (size_t i = 0; i < LENGTH(cases); i++) {
        char devices[GF_TEXT_MAX];
        gf_devices_group(cases[i].asked, cases[i].local, devices);
        assert_string_equal(devices, cases[i].devices);
    }
}

TEST(a_list_is_taken_name_by_name)
{
    static const char *const names[] = {"eth0", "mlx5_0:1"};
    const char *list = "eth0,mlx5_0:1";
    char name[GF_TEXT_MAX];
    for (size_t i = 0; i < LENGTH(names); i++) {
        assert_true(gf_devices_next(&list, name, sizeof name));
        assert_string_equal(name, names[i]);
    }
    assert_false(gf_devices_next(&list, name, sizeof name));
}

TEST(the_longest_list_says_how_many_streams_there_are)
{
    static const struct {
        const char *asked;
        uint32_t most;
    } cases[] = {{"", 1}, {"eth0", 1}, {"a,b", 2}, {"a;b", 1}, {"a,b;c", 2}, {"a;b,c,d;e,f", 3}};
    for (size_t i = 0; i < LENGTH(cases); i++)
        assert_int_equal(gf_devices_most(cases[i].asked), cases[i].most);
}
