#!/bin/sh
# Uploads the files that the service expects. Putting an object twice leaves one object, so an attempt may repeat it.
set -eu

prefix="seed/$EBB_RESOURCE/"
endpoint="${AWS_ENDPOINT_URL_S3:-https://s3.$AWS_REGION.amazonaws.com}"

# Sends a request and fails unless the response is a success. Retries for half a minute.
s3() {
    if [ -n "${AWS_ACCESS_KEY_ID:-}" ]; then
        set -- --aws-sigv4 "aws:amz:$AWS_REGION:s3" --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" \
            --header "x-amz-content-sha256: UNSIGNED-PAYLOAD" \
            ${AWS_SESSION_TOKEN:+--header} ${AWS_SESSION_TOKEN:+"x-amz-security-token: $AWS_SESSION_TOKEN"} "$@"
    fi
    curl --silent --show-error --fail --connect-timeout 5 --max-time 60 \
        --retry 30 --retry-delay 1 --retry-connrefused --retry-all-errors "$@"
}

upload() {
    s3 --request PUT --header "content-type: application/json" --data-binary "$2" "$endpoint/$BUCKET_NAME/$prefix$1"
    echo "uploaded $prefix$1"
}

upload settings.json '{"currency": "EUR", "locale": "en"}'
upload customers/1.json '{"id": 1, "name": "Ada"}'
upload customers/2.json '{"id": 2, "name": "Grace"}'
upload orders/2026-11.json '[{"customer": 1, "total": 1250}, {"customer": 2, "total": 300}]'

printf %s "$prefix" >/tmp/base-prefix
