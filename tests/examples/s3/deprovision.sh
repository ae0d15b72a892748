#!/bin/sh
# Empties and deletes the bucket; a missing one is not an error. Without a name, no attempt of "provision" reported one,
# but it may have created the bucket: EBB_KEY is that of "provision".
set -eu

bucket="${BUCKET_NAME:-ebb-$EBB_KEY}"
endpoint="${AWS_ENDPOINT_URL_S3:-https://s3.$AWS_REGION.amazonaws.com}"

# Sends a request; writes the response to /tmp/answer and its status to $status. A status that is not in $1 is fatal.
# Retries for half a minute.
s3() {
    expected=$1
    shift
    if [ -n "${AWS_ACCESS_KEY_ID:-}" ]; then
        set -- --aws-sigv4 "aws:amz:$AWS_REGION:s3" --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" \
            --header "x-amz-content-sha256: UNSIGNED-PAYLOAD" \
            ${AWS_SESSION_TOKEN:+--header} ${AWS_SESSION_TOKEN:+"x-amz-security-token: $AWS_SESSION_TOKEN"} "$@"
    fi
    status=$(curl --silent --show-error --output /tmp/answer --write-out '%{http_code}' --connect-timeout 5 \
        --max-time 60 --retry 30 --retry-delay 1 --retry-connrefused --retry-all-errors "$@")
    case " $expected " in
    *" $status "*) ;;
    *)
        echo "the answer is $status to: $*" | sed 's/--user [^ ]* //' >&2
        cat /tmp/answer >&2
        exit 1
        ;;
    esac
}

while :; do
    s3 "200 404" "$endpoint/$bucket?encoding-type=url&list-type=2"
    [ "$status" = 200 ] || break
    grep -o '<Key>[^<]*</Key>' /tmp/answer | sed 's,</*Key>,,g' >/tmp/keys || true
    [ -s /tmp/keys ] || break
    while read -r key; do
        s3 "200 204 404" --request DELETE "$endpoint/$bucket/$key"
        echo "removed $key"
    done </tmp/keys
done

s3 "200 204 404" --request DELETE "$endpoint/$bucket"
echo "removed $bucket"
