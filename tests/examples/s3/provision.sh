#!/bin/sh
# Creates the bucket. Its name is the same in every attempt: an attempt after a lost one finds the bucket of that one,
# and "deprovision" knows the name even if no attempt reported it.
set -eu

bucket="ebb-$EBB_KEY"
endpoint="${AWS_ENDPOINT_URL_S3:-https://s3.$AWS_REGION.amazonaws.com}"

# Sends a request, writes the response to /tmp/answer and prints its status. Retries for half a minute.
s3() {
    if [ -n "${AWS_ACCESS_KEY_ID:-}" ]; then
        set -- --aws-sigv4 "aws:amz:$AWS_REGION:s3" --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" \
            --header "x-amz-content-sha256: UNSIGNED-PAYLOAD" \
            ${AWS_SESSION_TOKEN:+--header} ${AWS_SESSION_TOKEN:+"x-amz-security-token: $AWS_SESSION_TOKEN"} "$@"
    fi
    curl --silent --show-error --output /tmp/answer --write-out '%{http_code}' --connect-timeout 5 --max-time 60 \
        --retry 30 --retry-delay 1 --retry-connrefused --retry-all-errors "$@"
}

if [ "$AWS_REGION" = us-east-1 ]; then
    where=
else
    where="<CreateBucketConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><LocationConstraint>$AWS_REGION"
    where="$where</LocationConstraint></CreateBucketConfiguration>"
fi

status=$(s3 --request PUT --data-binary "$where" "$endpoint/$bucket")
if [ "$status" = 200 ]; then
    echo "created $bucket in $AWS_REGION"
elif [ "$status" = 409 ] && [ "$(s3 --head "$endpoint/$bucket")" = 200 ]; then
    echo "$bucket exists: an earlier attempt has created it"
else
    echo "cannot create $bucket, the answer is $status:" >&2
    cat /tmp/answer >&2
    exit 1
fi

printf %s "$bucket" >/tmp/bucket-name
