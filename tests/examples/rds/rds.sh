#!/bin/sh
# Creates (ACTION=create), deletes (delete) or looks for (verify) the instance `ebb-EBB_KEY`. Its name is the same in all
# attempts and in the teardown, so an attempt finds what an earlier one has created. `list` writes the names of all instances.
set -eu

name="ebb-$EBB_KEY"

# Prints the text of the first element with a name in the last answer.
element() {
    grep -o "<$1>[^<]*" /tmp/answer | head -n 1 | sed 's/.*>//'
}

# Sends a request to a service until the answer is not temporary. Sets $code: `ok`, or the code of the error.
ask() {
    service=$1
    shift
    for pair do
        set -- "$@" --data-urlencode "$pair"
        shift
    done
    while :; do
        : >/tmp/answer
        status=$(curl --silent --show-error --output /tmp/answer --write-out '%{http_code}' --connect-timeout 5 \
            --max-time 60 --aws-sigv4 "aws:amz:$REGION:$service" --user "$CREDENTIAL" "$@" \
            "${ENDPOINT:-https://$service.$REGION.amazonaws.com/}") || status=000
        code=$(element Code)
        case "$status $code" in
        2*)
            code=ok
            return
            ;;
        *Throttling | *InvalidDBInstanceState | 5* | 000*) sleep 15 ;;
        *) return ;;
        esac
    done
}

rds() {
    action=$1
    shift
    ask rds Version=2014-10-31 "Action=$action" "DBInstanceIdentifier=$name" "$@"
}

fail() {
    echo "$1, the answer is $status:" >&2
    cat /tmp/answer >&2
    exit 1
}

# Succeeds if the instance does not exist. RDS answers the same for an instance of another account.
is_gone() {
    rds DescribeDBInstances
    case $code in
    ok) return 1 ;;
    DBInstanceNotFound) ;;
    *) fail "cannot look for $name" ;;
    esac
    [ -n "${ARN:-}" ] || return 0
    ask sts Version=2011-06-15 Action=GetCallerIdentity
    case $ARN in
    *":$(element Account):"*) ;;
    *) fail "the credential is not of the account of $ARN" ;;
    esac
}

case $ACTION in
create)
    rds CreateDBInstance Engine=postgres "DBInstanceClass=$CLASS" AllocatedStorage=20 DBName=app MasterUsername=app \
        "MasterUserPassword=$PASSWORD"
    case $code in
    ok | DBInstanceAlreadyExists) ;;
    *) fail "cannot create $name" ;;
    esac
    while :; do
        rds DescribeDBInstances
        case "$code $(element DBInstanceStatus)" in
        "ok available") break ;;
        "ok failed" | "ok incompatible-"*) fail "$name has failed" ;;
        "ok "* | DBInstanceNotFound*) sleep 15 ;;
        *) fail "cannot look for $name" ;;
        esac
    done
    printf %s "$(element DBInstanceArn)" >/tmp/arn
    printf %s "postgresql://app:$PASSWORD@$(element Address):5432/app" >/tmp/dsn
    ;;
delete)
    rds DeleteDBInstance SkipFinalSnapshot=true
    case $code in
    ok | DBInstanceNotFound) ;;
    *) fail "cannot delete $name" ;;
    esac
    until is_gone; do sleep 15; done
    ;;
verify)
    is_gone || fail "$name still exists"
    ;;
list)
    marker=
    : >/tmp/things
    while :; do
        ask rds Version=2014-10-31 Action=DescribeDBInstances ${marker:+"Marker=$marker"}
        [ "$code" = ok ] || fail "cannot list the instances"
        grep -o '<DBInstanceIdentifier>ebb-[^<]*' /tmp/answer | sed 's/.*>//' >>/tmp/things
        marker=$(element Marker)
        [ -n "$marker" ] || break
    done
    ;;
esac
