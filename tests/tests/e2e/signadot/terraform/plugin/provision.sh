#!/bin/sh
set -eu
cd "$(mktemp -d)"
# The resource needs no provider, because none can be downloaded.
cat >main.tf <<'END'
terraform {
  backend "s3" {
    skip_credentials_validation = true
    skip_region_validation      = true
    skip_requesting_account_id  = true
  }
}

variable "bucket_name" {}

resource "terraform_data" "bucket" {
  input = var.bucket_name
}

output "bucket" {
  value = terraform_data.bucket.output
}
END
export TF_VAR_bucket_name="bucket-${SIGNADOT_RESOURCE_NAME}-${SIGNADOT_SANDBOX_ID}"
terraform init -backend-config="bucket=$TFSTATE_BUCKET" -backend-config="key=$TF_VAR_bucket_name"
terraform apply -auto-approve
echo -n "$(terraform output -raw bucket)" >/tmp/bucket-name
