#!/bin/sh
# suite: long. What gf-plan --paper predicted when it was looked at last: a change of 1 % has to be looked at again.
. firmware-tests/support/shell.sh

"$BUILD/gf-plan" --paper --brief >"$scratch/paper" || { not_ok paper_runs "exit $?"; finish; }
# near NAME EXPECTED GOT
near() { check "$1" awk -v a="$2" -v b="${3:-0}" 'BEGIN {exit !(b / a > 0.99 && b / a < 1.01)}'; }
while IFS='|' read -r what gpus expected; do
    near "$(echo "$what on $gpus" | tr -c 'A-Za-z0-9\n' _)" "$expected" \
        "$(sed -n "s/^$what  *$gpus  *[0-9.]*x  *\([0-9.]*\)x .*/\1/p" "$scratch/paper")"
done <<END
AlexNet, reduction tree|64|6.9
AlexNet, unfused ring|64|20.0
AlexNet, unfused, host MPI|64|4.3
AlexNet, all together|512|440.4
ResNet-50, all together|512|504.5
GoogLeNet, tree|32|25.4
GoogLeNet, tree|128|51.5
Network-in-Network, tree|32|23.8
Network-in-Network, tree|128|42.7
END
# A smaller share is not slower.
for keep in 0.10 0.15 0.20; do
    "$BUILD/gf-plan" --model config/models/alexnet.cfg --cluster config/clusters/gradientflow.cfg --gpus 512 \
        --modes sparse --keep $keep
done >"$scratch/shares"
check the_share_moves_one_way awk '/^ +512 sparse/ {
    if (n++ > 0 && $5 > before * 1.002) bad = 1
    before = $5
} END {exit bad || n != 3}' "$scratch/shares"
# What the predictions depend on, for models that take no time.
mkdir "$scratch/models" && cp -r config/clusters "$scratch"
for model in alexnet resnet50 googlenet nin; do
    echo 'tensors = ( { name = "w"; shape = [40]; flops = [1000, 2000]; } );' >"$scratch/models/$model.cfg"
done
GF_DATA_DIR=$scratch "$BUILD/gf-plan" --paper >"$scratch/paper"
check the_sensitivity_has_its_lines [ "$(grep -Ec '^  (AlexNet|ResNet-50), .*(  [0-9.]+: [0-9.]+x){3,5}$' "$scratch/paper")" -eq 7 ]
# 7 s of one core on the machine of results/plan.md.
check a_hierarchy_of_64_nodes_of_8_takes_less_than_a_minute sh -c \
    "ulimit -t 60; $BUILD/gf-plan --gpus 512 --modes hierarchy | grep -q '^  512 hierarchy '"
finish
