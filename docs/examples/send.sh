#!/bin/sh
# Signs a lifecycle webhook and sends it until Ebb accepts or rejects it:
#
#     send.sh created|updated|deleted NAME UID [GENERATION [FILE]]
#
# FILE is the sandbox document; `created` and `updated` need it. KIND is `sandbox` unless the environment sets it.
#
#     EBB_URL             the server, such as https://ebb.example.com
#     EBB_WEBHOOK_SECRET  one of the webhook secrets of the deployment, whsec_...
#
# Needs openssl and curl. The key is an argument of openssl, which other users of the machine can read: where that
# matters, use send.py.
set -eu

action=$1 name=$2 uid=$3 generation=${4:-1} file=${5:-} kind=${KIND:-sandbox}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The id is the same for every repetition of the webhook. A webhook-id must not contain a full stop.
id=$(printf '%s/%s/%s/%s/%s' "$action" "$kind" "$name" "$uid" "$generation" | openssl dgst -sha256 -r | cut -c1-32)

# The body is written once and sent as it is: the signature covers its bytes.
{
    printf '{"specversion":"1.0","id":"%s","source":"https://platform.example.com",' "$id"
    printf '"type":"dev.ebb.target.%s.v1","time":"%s",' "$action" "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
    printf '"datacontenttype":"application/json",'
    printf '"data":{"kind":"%s","name":"%s","uid":"%s","generation":%s' "$kind" "$name" "$uid" "$generation"
    if [ -n "$file" ]; then
        printf ',"document":"'
        sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e "s/$(printf '\t')/\\\\t/g" -e 's/$/\\n/' "$file" | tr -d '\n'
        printf '"'
    fi
    printf '}}'
} >"$work/body"

key=$(printf %s "${EBB_WEBHOOK_SECRET#whsec_}" | openssl base64 -d -A | od -An -v -tx1 | tr -d ' \n')

attempt=0
while [ "$attempt" -lt 8 ]; do
    attempt=$((attempt + 1))
    # Each repetition has a signature of its own, because the time is signed too.
    timestamp=$(date +%s)
    signature=$({ printf '%s.%s.' "$id" "$timestamp"; cat "$work/body"; } |
        openssl dgst -sha256 -mac HMAC -macopt "hexkey:$key" -binary | openssl base64 -A)
    status=$(curl --silent --show-error --max-time 35 --output "$work/response" --write-out '%{http_code}' \
        --header 'content-type: application/cloudevents+json' \
        --header "webhook-id: $id" \
        --header "webhook-timestamp: $timestamp" \
        --header "webhook-signature: v1,$signature" \
        --data-binary "@$work/body" "${EBB_URL%/}/v1/events") || status=000
    case $status in
    202)
        cat "$work/response"
        echo
        exit 0
        ;;
    000 | 408 | 425 | 429 | 5*) echo "status $status, attempt $attempt" >&2 ;;
    *)
        echo "status $status: the webhook is rejected" >&2
        cat "$work/response" >&2
        echo >&2
        exit 1
        ;;
    esac
    sleep $((1 << attempt))
done
echo "no answer after $attempt attempts" >&2
exit 2
