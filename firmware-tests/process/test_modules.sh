#!/bin/sh
# The core alone, and with each module alone: it links, it runs on two ranks, it holds nothing of the other modules, and
# it refuses a configuration that asks for more, by name.
. firmware-tests/support/shell.sh
says() { case "$2" in *"$1"*) ;; *) echo "wanted <$1> in <$2>"; return 1;; esac; }
modules="core server direct hierarchy authentication hardware integrity device"
modules="$modules sparse quantize optimizer elastic state observe"
program() { echo "$BUILD/firmware-tests/modules_$1"; }
[ -x "$(program core)" ] || { skip "modules" "this build has no UCX, which the core's table names"; finish; }
# Members of the library that a program holds.
members() { awk -v LIB=libgradientflow.a -f firmware-tests/support/size.awk "$(program "$1").map" | cut -d' ' -f1; }
none() {
    found=$(members "$1" | grep -E "^($2)\.o$")
    [ -z "$found" ] || { echo "modules_$1 holds" $found; return 1; }
}

for module in $modules; do
    key=
    if [ $module = authentication ]; then
        key=$scratch/key
        head -c 32 /dev/zero | tr '\0' k >"$key" && chmod 600 "$key"
    fi
    out=$("$BUILD/gf-run" -n 2 --merge "$(program $module)" $key 2>&1)
    check "${module}_runs_on_two_ranks" same 2 "$(echo "$out" | grep -c '^whole 4 of 2$')"
    case $module in
    optimizer) check "and_updates" says "weight -15" "$out";;
    elastic)   check "and_refuses_to_shrink_what_has_not_failed" says "shrink GF_ERR_STATE" "$out";;
    state)     check "and_saves_and_loads" says "steps 4" "$out";;
    observe)   check "and_keeps_records" says "records 1" "$out"; check "and_counts" says "stats 4" "$out";;
    esac
done

none_of() { check "the_$1_program_holds_no_$2" none "$1" "$3"; }
for module in $modules; do
    [ $module = authentication ] || none_of $module authentication 'rendezvous_auth|connection(_proof|_record)?'
    [ $module = integrity ] || none_of $module integrity 'integrity|crc32c'
    [ $module = device ] || none_of $module device 'device|exported|gpu_cuda.*|ops_cuda|gf_kernels_fatbin'
    [ $module = elastic ] || none_of $module elastic 'elastic|shrink|rejoin|recovering|quorum|view.*'
    [ $module = optimizer ] || none_of $module optimizer 'optimizer|update'
    [ $module = state ] || none_of $module state 'state|state_hash'
    [ $module = observe ] || none_of $module observe 'trace|stats|link_times'
    [ $module = sparse ] || none_of $module sparse 'sparse.*'
    [ $module = quantize ] || none_of $module quantize 'quantize|alltoall'
    [ $module = direct ] || [ $module = hierarchy ] || [ $module = device ] || none_of $module direct 'direct.*'
    [ $module = hierarchy ] || none_of $module hierarchy hierarchy
    [ $module = server ] || none_of $module server server
done

# Element ops: of the one set that the table names, and of a module those of its own.
no_symbol() {
    found=$(nm "$(program "$1")" | awk '{print $3}' | grep -E "^($2)$")
    [ -z "$found" ] || { echo "modules_$1 holds" $found; return 1; }
}
no_ops() { check "the_$1_program_holds_no_ops_of_$2" no_symbol $1 "$3"; }
for module in core sparse quantize optimizer; do
    no_ops $module other_sets 'gf_.*ops_(scalar|avx512)'
    [ $module = sparse ] || no_ops $module sparse 'gf_sparse_ops_.*|score|cast_chunks|accumulate_chunks|zero_chunks'
    no_ops $module nodes 'gf_node_ops_avx2|sum_n.*|copy_n'
    [ $module = optimizer ] || no_ops $module optimizer 'gf_optimizer_ops_.*|norm|ratio|update|update_.*|adam'
    [ $module = quantize ] || no_ops $module quantize 'gf_quantize_ops_.*|quantize|dequantize'
done
check "nor_the_core_histories" no_symbol core accumulate

refused() { says "$2" "$("$(program core)" refuse "$1")"; }
check "nor_what_looks_for_devices" no_symbol core 'gf_ucx_device_rate|gf_ucx_resources|gf_ucx_pages_text'
for module in sparse quantize optimizer elastic authentication hardware integrity; do
    check "the_core_names_$module" refused $module \
        "the module \"$module\" is not linked into this program: its picked has no .$module = &gf_module_$module"
done
for algorithm in server direct hierarchy; do
    check "and_$algorithm" refused $algorithm "exchange.algorithm = $algorithm is not linked"
done
check "and_the_device" refused device ".device = &gf_module_device links others"

# auto takes what all ranks have: one that lacks direct is told so at the join, by all.
mixed() {
    "$BUILD/gf-run" -n 2 --merge -- sh -c 'exec "$0$([ "$GF_RANK" = 0 ] && echo core || echo direct)"' \
        "$BUILD/firmware-tests/modules_" 2>&1
}
check "ranks_with_other_algorithms_do_not_join" says "direct is unlinked at rank 0" "$(mixed)"
finish
