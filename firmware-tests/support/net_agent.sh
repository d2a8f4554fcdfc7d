#!/bin/sh
# What an MPI launcher takes for ssh: net_agent.sh [OPTION..] HOST COMMAND.. runs the command in the namespace HOST, under
# a host name of its own, with no process nor shared memory of another host: UCX looks at that.
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
exec ip netns exec "$host" unshare --uts --ipc --pid --fork --kill-child --mount-proc sh -c "hostname $host; $*"
