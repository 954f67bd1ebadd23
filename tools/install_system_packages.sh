#!/bin/sh
# What the tests need from the system and pip cannot bring: an OpenSSH server (real SSH tests), gcc (the test
# delegate), and a Vulkan driver (the gpu platform; Debian's chromium carries SwiftShader). Does nothing when all
# are there; says what to install when it may not. With arguments: installs just these packages.
set -eu
missing="$*"
if [ -z "$missing" ]; then
  [ -x /usr/sbin/sshd ] || missing="$missing openssh-server"
  command -v ssh-keygen >/dev/null 2>&1 || missing="$missing openssh-client"
  command -v gcc >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
  ls /usr/lib/*/libvulkan.so.1 >/dev/null 2>&1 || missing="$missing libvulkan1"
  swiftshader=/usr/lib/chromium/vk_swiftshader_icd.json
  if [ ! -e "$swiftshader" ] && ! ls /usr/share/vulkan/icd.d/*.json >/dev/null 2>&1; then
    # On Ubuntu `chromium` is only a stub for a snap and brings no driver.
    if grep -q '^ID=debian' /etc/os-release 2>/dev/null; then missing="$missing chromium"
    else echo "no Vulkan driver: the gpu tests will skip (any Vulkan 1.1 driver will do)" >&2; fi
  fi
fi
[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ]; then sudo=""; elif command -v sudo >/dev/null 2>&1; then sudo="sudo"; else
  echo "these system packages are missing and root is needed to install them:$missing" >&2; exit 1
fi
echo "installing:$missing"
$sudo apt-get update -q
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -q --no-install-recommends $missing
