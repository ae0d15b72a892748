#!/bin/sh
set -eu
cd "$(mktemp -d)"
cat >main.tf <<'END'
terraform {
  backend "s3" {
    skip_credentials_validation = true
    skip_region_validation      = true
    skip_requesting_account_id  = true
  }
}
END
terraform init -backend-config="bucket=$TFSTATE_BUCKET" -backend-config="key=$BUCKET_NAME"
terraform destroy -auto-approve
