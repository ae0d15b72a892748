#!/bin/sh
# Writes the keys and certificates of a cluster: one authority, a certificate per server, a kubeconfig per client.
#
#   keys.sh FOLDER NODE ADDRESS API     the name and the address of the node, the address of the service `kubernetes`
#
# They are created with the cluster and removed with it. Only root can read the files.
set -eu
umask 077
etc=$(realpath "$(dirname "$0")/etc") node=$2 address=$3 api=$4
mkdir -p "$1"
cd "$1"

# Without own settings, openssl adds the extensions of the machine's settings.
printf '[req]\ndistinguished_name = name\n[name]\n' >openssl.cnf

# Writes a key, and its certificate with a subject, further options and extensions.
certificate() {
    file=$1 subject=$2
    shift 2
    openssl req -new -x509 -config openssl.cnf -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc \
        -days 3650 -subj "$subject" -keyout "$file.key" -out "$file.crt" "$@" 2>openssl.log || {
        cat openssl.log >&2
        exit 1
    }
}

# Writes a key and a certificate of the authority, for `serverAuth` or `clientAuth`.
signed() {
    file=$1 subject=$2 usage=$3
    shift 3
    certificate "$file" "$subject" -CA ca.crt -CAkey ca.key -addext basicConstraints=critical,CA:FALSE \
        -addext keyUsage=critical,digitalSignature -addext "extendedKeyUsage=$usage" "$@"
}

certificate ca /CN=ebb-cluster -addext basicConstraints=critical,CA:TRUE \
    -addext keyUsage=critical,keyCertSign,digitalSignature
services=DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc
signed kube-apiserver /CN=kube-apiserver serverAuth \
    -addext "subjectAltName=DNS:localhost,$services,IP:127.0.0.1,IP:$address,IP:$api"
signed kubelet /CN=kubelet serverAuth -addext "subjectAltName=DNS:$node,IP:$address"
# The API server authenticates to the kubelet with this certificate; both trust the same authority.
signed kube-apiserver-client /CN=kube-apiserver/O=system:masters clientAuth
openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out accounts.key
openssl pkey -in accounts.key -pubout -out accounts.pub

while read -r user subject; do
    signed client "$subject" clientAuth
    sed "s|{{server}}|https://$address:6443|
        s|{{authority}}|$(base64 --wrap 0 ca.crt)|
        s|{{certificate}}|$(base64 --wrap 0 client.crt)|
        s|{{key}}|$(base64 --wrap 0 client.key)|" "$etc/kubeconfig.json" >"$user.kubeconfig"
done <<END
admin /CN=admin/O=system:masters
kube-controller-manager /CN=system:kube-controller-manager
kube-scheduler /CN=system:kube-scheduler
kube-proxy /CN=system:kube-proxy
kubelet /CN=system:node:$node/O=system:nodes
END
# No further certificate can be signed.
rm ca.key client.crt client.key openssl.cnf openssl.log
