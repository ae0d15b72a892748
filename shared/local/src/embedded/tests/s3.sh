# Sends requests to the server of buckets at the URL $1 by curl. Usage: sh s3.sh URL TEST
set -eu
url=$1
bucket=$url/my-bucket

# Sends a request. Checks the status of the response, and leaves its body in $body.
answers() {
    expected=$1
    shift
    answer=$(curl -sS -w '\n%{http_code}' "$@")
    status=${answer##*
}
    body=${answer%
*}
    [ "$status" = "$expected" ] || fail "$*: the status is $status and not $expected"
}

has() {
    case $body in
    *"$1"*) ;;
    *) fail "the body lacks $1" ;;
    esac
}

# Checks the number of keys in a list.
keys() {
    found=$(printf %s "$body" | sed 's/<Key>/\
&/g' | grep -c '<Key>') || true
    [ "$found" = "$1" ] || fail "the list has $found keys and not $1"
}

fail() {
    printf '%s\n%s\n' "$1" "${body:-}" >&2
    exit 1
}

curl_can_use_the_server() {
    answers 404 -I "$bucket"
    answers 200 -X PUT "$bucket"
    answers 200 -I "$bucket"
    answers 409 -X PUT "$bucket"
    has BucketAlready
    for name in a/1 a/2 a/3 b/1; do
        answers 200 --aws-sigv4 aws:amz:eu-west-1:s3 --user AKIAFOREIGN:secret -X PUT --data-binary hello "$bucket/$name"
    done
    answers 200 "$bucket/a/1"
    [ "$body" = hello ] || fail 'the object has other bytes'
    answers 200 "$bucket?list-type=2&prefix=a/"
    keys 3
    answers 200 "$bucket?list-type=2&prefix=a/&max-keys=2"
    has '<IsTruncated>true</IsTruncated>'
    keys 2
    token=${body#*<NextContinuationToken>}
    answers 200 "$bucket?list-type=2&prefix=a/&max-keys=2&continuation-token=${token%%<*}"
    has '<Key>a/3</Key>'
    keys 1
    answers 409 -X DELETE "$bucket"
    has BucketNotEmpty
    for name in a/1 a/2 a/3 a/4; do
        answers 204 -X DELETE "$bucket/$name"
    done
    answers 200 -X POST --data-binary '<Delete><Object><Key>b/1</Key></Object></Delete>' "$bucket?delete"
    has '<Deleted>'
    answers 204 -X DELETE "$bucket"
    answers 404 -X DELETE "$bucket"
    answers 404 -I "$bucket"
}

keys_cannot_leave_their_bucket() {
    answers 200 -X PUT "$url/one"
    answers 200 -X PUT "$url/two"
    answers 200 -X PUT --data-binary canary "$url/two/secret"
    for key in ../two/secret a/../../two/secret %2E%2E/two/secret ./../two/secret /two/secret; do
        answers 400 -X GET --path-as-is "$url/one/$key"
        has InvalidArgument
        answers 400 -X PUT --data-binary taken --path-as-is "$url/one/$key"
        has InvalidArgument
        answers 400 -X DELETE --path-as-is "$url/one/$key"
        has InvalidArgument
        answers 400 -X PUT -H "x-amz-copy-source: /one/$key" "$url/one/copy"
    done
    answers 400 -X POST --data-binary '<Delete><Object><Key>../two/secret</Key></Object></Delete>' "$url/one?delete"
    answers 200 "$url/two/secret"
    [ "$body" = canary ] || fail 'the object has other bytes'
}

# The request fails, although the emulator has replaced the object. The digests are those of "hello" by
# `openssl dgst -binary` and base64.
a_body_with_another_digest_is_rejected() {
    answers 200 -X PUT "$bucket"
    for digest in 'content-md5: XUFAKrxLKna5cZ2REBfFkg==' \
        'x-amz-checksum-sha256: LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ='; do
        answers 200 -X PUT -H "$digest" --data-binary hello "$bucket/object"
        answers 400 -X PUT -H "$digest" --data-binary other "$bucket/object"
    done
}

requests_of_web_pages_are_rejected() {
    answers 421 -X PUT -H 'host: evil.test' "$bucket-1"
    answers 421 -X PUT -H 'host: 127.0.0.1.evil.test' "$bucket-2"
    answers 200 -X PUT -H 'host: localhost:1' "$bucket-3"
    answers 200 -X PUT -H 'host: [::1]' "$bucket-4"
    answers 200 -X PUT "$bucket"
    answers 501 -F key=form -F file=hello "$bucket"
    answers 404 "$bucket/form"
}

"$2"
