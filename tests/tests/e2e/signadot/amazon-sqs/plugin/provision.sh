#!/bin/bash
set -eu

name="queue-${SIGNADOT_RESOURCE_NAME}-${SIGNADOT_SANDBOX_ID}"
options=()
[ -z "${ATTRIBUTES:-}" ] || options+=(--attributes "$ATTRIBUTES")
[ -z "${TAGS:-}" ] || options+=(--tags "$TAGS")
aws sqs create-queue --queue-name "$name" "${options[@]}" >/tmp/queue.json
echo -n "$name" >/tmp/queue-name
echo -n "$(jq -r .QueueUrl /tmp/queue.json)" >/tmp/queue-url
