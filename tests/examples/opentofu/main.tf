# What a sandbox gets: here a folder with a settings file, so that it needs neither a cloud nor a provider to download.
# Replace the resources and outputs, and all variables but `key`, by your own.
terraform {
  required_version = ">= 1.10"

  # `tofu.sh` sets bucket and key. Credentials and region come from the environment.
  backend "s3" {
    use_lockfile                = true
    skip_credentials_validation = true
    skip_region_validation      = true
    skip_requesting_account_id  = true
  }
}

variable "key" {
  description = "A name that is the same in all attempts, and that no other resource has."
  type        = string
}

variable "root" {
  type = string
}

variable "greeting" {
  type = string
}

# The names are known before, so an apply finds what a killed one has made.
resource "terraform_data" "folder" {
  input = "${var.root}/${var.key}"

  provisioner "local-exec" {
    command     = "mkdir -p \"$FOLDER\""
    environment = { FOLDER = self.input }
  }

  provisioner "local-exec" {
    when        = destroy
    command     = "rm -rf \"$FOLDER\""
    environment = { FOLDER = self.input }
  }
}

resource "terraform_data" "settings" {
  triggers_replace = [terraform_data.folder.id, var.greeting]

  provisioner "local-exec" {
    command     = "install -d \"$FOLDER\" && echo \"greeting = \\\"$GREETING\\\"\" >\"$FOLDER/settings.toml\""
    environment = { FOLDER = terraform_data.folder.output, GREETING = var.greeting }
  }
}

output "folder" {
  value = terraform_data.folder.output
}

output "id" {
  value = terraform_data.folder.id
}

output "files" {
  value = ["settings.toml"]
}
