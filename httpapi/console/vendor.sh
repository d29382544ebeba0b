#!/usr/bin/env bash
# Fetches the JavaScript of others that the console has, from npm, into assets/vendor. It
# changes what a browser would refuse: a module names its neighbour by path, because a browser
# resolves no package names; and with the policy of the document a style element of the terminal
# has the nonce, and its colours are set by CSSOM instead of an attribute. assets.sum has the
# SHA-256 of each file upstream and here.
#
#   httpapi/console/vendor.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p assets/vendor
: >"$work/sum"

# take PACKAGE@VERSION FILE NAME
take() {
	local package=${1%@*} dir=$work/${1//\//_}
	package=${package#@} package=${package//\//-}
	if [[ ! -d $dir ]]; then
		mkdir "$dir"
		(cd "$dir" && npm pack --silent "$1" >/dev/null && tar xzf ./*.tgz --strip-components=1)
		cp "$dir/LICENSE" "assets/vendor/LICENSE.$package"
	fi
	sed -E -e 's#from"preact"#from"./preact.mjs"#; /^\/\/# sourceMappingURL=/d' \
		-e 's#[A-Za-z_.]+\.createElement\("style"\)#Object.assign(&,{nonce:document.querySelector("script").nonce})#g' \
		-e 's#(\w+)\.setAttribute\("style",`\$\{\w+\.getAttribute\("style"\)\|\|""\}\$\{(\w+)\};`\)#\1.style.cssText+=\2+";"#' \
		"$dir/$2" >"assets/vendor/$3"
	printf '%s %s %s %s %s\n' "vendor/$3" "$1" "$2" "$(sha256sum <"$dir/$2" | cut -d' ' -f1)" \
		"$(sha256sum <"assets/vendor/$3" | cut -d' ' -f1)" >>"$work/sum"
}

take preact@11.2.0 dist/preact.mjs preact.mjs
take preact@11.2.0 hooks/dist/hooks.mjs hooks.mjs
take htm@3.1.1 dist/htm.mjs htm.mjs
take @xterm/xterm@6.0.0 lib/xterm.mjs xterm.mjs
take @xterm/xterm@6.0.0 css/xterm.css xterm.css
take @xterm/addon-fit@0.11.0 lib/addon-fit.mjs addon-fit.mjs
{
	echo '# file, package, file in the package, SHA-256 there, SHA-256 here. Made by vendor.sh.'
	cat "$work/sum"
} >assets.sum
