#!/bin/sh
# two_machines.sh COMMAND...: starts `COMMAND 7` and `COMMAND 9` at the same time, each as a run with two processes, one
# on each of two machines; process 0 is on the second one, where mpirun is not. The machines are network namespaces,
# connected by a pair of virtual devices. For root, in mount and network namespaces of its own.
set -e
mount -t tmpfs none /run
mkdir /run/netns
for name in one two; do
    ip netns add $name
    ip -n $name link set lo up
done
ip link add veth netns one type veth peer name veth netns two
ip -n one addr add 10.9.0.1/24 dev veth
ip -n two addr add 10.9.0.2/24 dev veth
ip -n one link set veth up
ip -n two link set veth up

cat > /run/agent <<'END'
#!/bin/sh
machine=$1
shift
exec ip netns exec "$machine" unshare --uts sh -c "hostname $machine; $*"
END
chmod +x /run/agent
printf 'rank 0=two slot=0\nrank 1=one slot=0\n' > /run/ranks
export GLOO_SOCKET_IFNAME=veth OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
run() {
    ip netns exec one unshare --uts sh -c 'hostname one; exec "$@"' sh mpirun --mca plm_rsh_agent /run/agent \
        -x GLOO_SOCKET_IFNAME --host one:1,two:1 -rf /run/ranks -n 2 "$@"
}
run "$@" 7 &
run "$@" 9
wait $!
