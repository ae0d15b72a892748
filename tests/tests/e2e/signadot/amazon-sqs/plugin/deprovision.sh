#!/bin/bash
set -eu
aws sqs delete-queue --queue-url="$QUEUE_URL"
