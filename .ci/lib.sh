# What .ci/run and .ci/long have in common. Both source it.
# shellcheck shell=bash disable=SC2034 # what is set here is used there

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1
tmp=$root/.tmp
mkdir -p "$tmp/bin"

lint_version=v2.15.0
vuln_version=v1.9.0
# The clients that the tests run, each of exactly this version.
npm_clients=(runpod-sdk@1.1.2 openai@6.49.0 @runpod/mcp-server@4.0.0 @modelcontextprotocol/sdk@1.32.2
	openapi-typescript@7.13.0 openapi-fetch@0.17.0 typescript@5.9.3)
python_clients=(runpod==1.12.0 runpod-flash==1.21.0 pytest==9.2.0 fastapi==0.165.0 uvicorn==0.54.0)
# The generator has an environment of its own: it must not decide on the versions of what the SDKs need.
python_generators=(openapi-python-client==0.29.1)

# The versions of the Python SDK whose workers .ci/run tries, and those that only .ci/long tries.
python_sdks=(1.6.2 1.10.0 2.0.0rc2)
more_python_sdks=(1.7.1 1.7.13 1.8.2 1.12.0)

# Without this a test that needs something and does not have it is skipped.
export PODYARD_CI=1
export PODYARD_NODE_MODULES=$tmp/npm/node_modules
export PODYARD_PYTHON=$tmp/python/bin/python
export PODYARD_PYTHON_OPENAPI=$tmp/openapi/bin/python
export PODYARD_SDKS=$tmp/sdks
export PODYARD_PYTHON_NEWER=$PODYARD_SDKS/2.0.0rc2/bin/python
export PATH=$PATH:$tmp/proxies/usr/sbin:$tmp/proxies/usr/bin
if [[ -d $root/../shared/spec ]]; then
	PODYARD_SPEC=$(cd "$root/../shared/spec" && pwd)
	export PODYARD_SPEC
fi
# All steps build as .ci/package does: with the Go release that go.mod names (toolchain), and without paths
# of this machine. What one step has built, another one finds, also in another directory. Where that
# release cannot be fetched, the Go that is here does.
export GOFLAGS=${GOFLAGS:--trimpath}
if [[ ! -v GOTOOLCHAIN ]]; then
	GOTOOLCHAIN=$(sed -n 's/^toolchain //p' go.mod)
	export GOTOOLCHAIN
	go version >/dev/null 2>&1 || GOTOOLCHAIN=local
fi

# skip notes something that was left out, for the end.
skip() { printf 'skipped: %s\n' "$*" | tee -a "$tmp/skipped"; }

# npm_have prints npm_clients with the versions that are there.
npm_have() {
	node -p 'process.argv.slice(1).map((client) => {
		const name = client.slice(0, client.lastIndexOf("@"))
		return name + "@" + require(`${process.env.PODYARD_NODE_MODULES}/${name}/package.json`).version
	}).join(" ")' "${npm_clients[@]}" 2>/dev/null || true
}

# python_have does the same for the clients of a Python.
python_have() {
	"$1" -c '
import importlib.metadata as m, sys
names = [client.split("==")[0] for client in sys.argv[1:]]
print(*(name + "==" + m.version(name) for name in names))' "${@:2}" 2>/dev/null || true
}

# python_with makes an environment below tmp with exactly these clients.
python_with() {
	local env=$tmp/$1
	shift
	if [[ $(python_have "$env/bin/python" "$@") != "$*" ]]; then
		rm -rf "$env"
		python3 -m venv "$env"
		"$env/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
	fi
}

# install_sdks makes an environment for each of these versions of the Python SDK.
install_sdks() { # VERSION...
	local version
	for version in "$@"; do
		python_with "sdks/$version" "runpod==$version"
	done
}

# unpack_proxies gets the proxies of docs/operating.md and docs/postgres.md. They are not installed, because the
# packages would start them.
unpack_proxies() {
	mkdir -p "$tmp/proxies"
	apt-get update -qq
	(
		cd "$tmp/proxies"
		apt-get download -qq nginx caddy pgbouncer
		# Libraries that few systems have.
		apt-cache depends pgbouncer | awk '$1 == "Depends:" && $2 ~ /^lib(c-ares|event)/ { print $2 }' | xargs apt-get download -qq
		for package in *.deb; do dpkg -x "$package" .; done
		rm -f -- *.deb
	)
}

# prepare installs what is missing. Packages of the system take root.
prepare() {
	go version
	local packages=()
	command -v cc >/dev/null || packages+=(gcc libc6-dev)
	command -v node >/dev/null || packages+=(nodejs)
	command -v sftp >/dev/null || packages+=(openssh-client)
	command -v npm >/dev/null || packages+=(npm)
	python3 -c 'import ensurepip' 2>/dev/null || packages+=(python3-venv)
	# The engines that tests start and end themselves; nothing of them runs otherwise.
	command -v dockerd >/dev/null || packages+=(docker.io containerd)
	command -v docker-compose >/dev/null || docker compose version >/dev/null 2>&1 || packages+=(docker-compose)
	command -v podman >/dev/null || packages+=(podman netavark aardvark-dns nftables)
	command -v runc >/dev/null || packages+=(runc)
	command -v iptables >/dev/null || packages+=(iptables)
	command -v chromium >/dev/null || packages+=(chromium)
	command -v ip >/dev/null || packages+=(iproute2)
	command -v bwrap >/dev/null || packages+=(bubblewrap)
	command -v setpriv >/dev/null || packages+=(util-linux)
	# Tests start servers of their own; the one that the package starts is not used.
	compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || packages+=(postgresql)
	command -v promtool >/dev/null || packages+=(prometheus)
	if ((${#packages[@]})); then
		export DEBIAN_FRONTEND=noninteractive
		apt-get update -qq
		apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
	fi
	if ! command -v nginx >/dev/null || ! command -v caddy >/dev/null || ! command -v pgbouncer >/dev/null; then
		unpack_proxies
	fi
	if [[ $(npm_have) != "${npm_clients[*]}" ]]; then
		npm install --prefix "$tmp/npm" --no-save --no-audit --no-fund --ignore-scripts --loglevel error \
			"${npm_clients[@]}"
	fi
	python_with python "${python_clients[@]}"
	python_with openapi "${python_generators[@]}"
	install_sdks "${python_sdks[@]}"
	if [[ $("$tmp/bin/golangci-lint" version --short 2>/dev/null || true) != "${lint_version#v}" ]]; then
		GOBIN=$tmp/bin go install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$lint_version" ||
			rm -f "$tmp/bin/golangci-lint"
	fi
	go mod download
	# The test of generated clients fetches nothing itself.
	(cd examples/server/testdata/generated && go mod download)
}

# brief leaves of what go test -v prints a line for each package, and all of one that failed. At the end
# it says once more what failed: the output of one test may have thousands of lines.
brief() {
	awk '
		function drop() { split("", held); n = 0 }
		function show(   i) {
			for (i = 0; i < n; i++) {
				print held[i]
				if (held[i] ~ /^ *--- FAIL|_test\.go:[0-9]+: |^panic: |WARNING: DATA RACE/ && m < 60) why[m++] = substr(held[i], 1, 400)
			}
			drop()
		}
		/^=== / || /^ *--- PASS/ { next }
		/^(ok|\?) *\t/           { print; fflush(); drop(); next }
		/^FAIL\t/                { show(); print; fflush(); next }
		                         { held[n++] = $0 }
		END                      { show(); if (m) print "in short:"; for (i = 0; i < m; i++) print why[i] }'
}

# cross type-checks everything, tests and examples included, for other systems and processors. Each takes
# minutes, because all that is imported is compiled for it.
cross() { # GOOS/GOARCH...
	local on
	for on in "$@"; do
		echo "$on"
		GOOS=${on%/*} GOARCH=${on#*/} CGO_ENABLED=0 go vet ./...
	done
}

# compiled compiles packages, their tests and all that they import, and prints the files of the cache that
# have it: an output is NUMBER-d, and a file NUMBER-a names it.
compiled() { # CACHE PACKAGE...
	local outputs=$tmp/outputs
	go list -export -deps -test -f '{{.Export}}' "${@:2}" | sed -nE 's|.*/([0-9a-f]+)-d$|\1|p' | sort -u >"$outputs"
	sed -E 's|^(..).*|\1/&-d|' "$outputs"
	(cd "$1" && grep -rlFf "$outputs" --include='*-a' .)
}

# as_user runs a command as an ordinary user in a checkout of what is committed, with a home and
# directories of its own. Where the cache of modules is closed to others, as one below the home of
# root is, the user has another one, filled from it. What the tests are built of is compiled here, where
# other steps have compiled most of it, and copied: it would take minutes.
as_user() { # COMMAND...
	local dir modules proxy=off status=0
	dir=$(mktemp -d)
	modules=$(go env GOMODCACHE)
	mkdir "$dir"/{home,cache,tmp}
	git clone -q "$root" "$dir/checkout"
	compiled "$(go env GOCACHE)" "${user_packages[@]}" | tar -c -C "$(go env GOCACHE)" -T - | tar -x -C "$dir/cache"
	local user=(setpriv --reuid 65534 --regid 65534 --clear-groups env -i
		PATH="$PATH" HOME="$dir/home" GOCACHE="$dir/cache" TMPDIR="$dir/tmp"
		GOTOOLCHAIN="$GOTOOLCHAIN")
	if ! "${user[@]}" test -r "$modules/cache/download"; then
		cp -R "$modules/cache/download" "$dir/download"
		modules=$dir/modules proxy=file://$dir/download
		user+=(GOFLAGS="$GOFLAGS -mod=readonly -modcacherw" GONOSUMDB="*")
	else
		user+=(GOFLAGS="$GOFLAGS -mod=readonly")
	fi
	chmod 755 "$dir"
	chown -R 65534:65534 "$dir"
	user+=(GOMODCACHE="$modules" GOPROXY="$proxy")
	if "${user[@]}" go version >/dev/null; then
		# Tests that compile something in another module have the proxy off: what they need is there before.
		(cd "$dir/checkout" && "${user[@]}" go list -deps -test ./... >"$dir/packages" && "${user[@]}" "$@") || status=$?
	else
		echo "the user 65534 cannot run go"
		status=1
	fi
	rm -rf "$dir"
	return $status
}

# flakes prints the entries of .ci/flakes.
flakes() { grep -vE '^(#| *$)' .ci/flakes || true; }

# check_flakes fails for an entry that is too old, or that is not one.
check_flakes() {
	local day package name why bad=0 oldest
	oldest=$(date -u -d '14 days ago' +%F)
	while read -r day package name why; do
		if [[ ! $day =~ ^[0-9]{4}-[0-9]{2}-[0-9]{2}$ || $package != .?(/*) || $name != Test* || -z $why ]]; then
			echo ".ci/flakes: no entry: $day $package $name $why"
			bad=1
		elif [[ $day < $oldest ]]; then
			echo ".ci/flakes: $package $name fails now and then since $day: find its cause"
			bad=1
		fi
	done < <(flakes)
	return $bad
}

# failures prints package and name of each test that failed in a log of go test -v, and
# "package -" for a package that failed in another way: it was not built, it panicked, its
# time was over.
failures() { # LOG
	awk -v module="$(go list -m)" '
		/^--- FAIL: /  { name[n++] = $3 }
		/^panic: /     { panicked = 1 }
		/^(ok|\?) *\t/ { n = panicked = 0 }
		/^FAIL\t/ {
			sub("^" module, ".", $2)
			if (!n || panicked) print $2, "-"
			else for (i = 0; i < n; i++) print $2, name[i]
			n = panicked = 0
		}' "$1"
}

# only_flakes succeeds if tests failed in a log, and all of them are in .ci/flakes.
only_flakes() { # LOG
	local package name bad=0 some=0
	while read -r package name; do
		some=1
		if flakes | awk -v p="$package" -v t="$name" '$2 == p && $3 == t { found = 1 } END { exit !found }'; then
			echo "in .ci/flakes: $package $name"
		else
			echo "failed: $package $name"
			bad=1
		fi
	done < <(failures "$1")
	((some && !bad))
}

# again succeeds if at most three tests of a log failed that are not in .ci/flakes, and each of them
# passes three times by itself.
again() { # LOG COMMAND...: go test, with its flags
	local log=$1 package name some=0
	shift
	while read -r package name; do
		if flakes | awk -v p="$package" -v t="$name" '$2 == p && $3 == t { found = 1 } END { exit !found }'; then
			continue
		fi
		[[ $name != - ]] && ((++some <= 3)) || return 1
		echo "again: $package $name"
		"$@" -count 3 -timeout 20m -run "^$name\$" "$package" </dev/null || return 1
		skip "$package $name failed once and then passed three times: find its cause"
	done < <(failures "$log")
	((some))
}

# packages_with prints package and directory of those whose tests have functions that begin so.
packages_with() { # Fuzz|Benchmark
	local package dir
	go list -f '{{.ImportPath}} {{.Dir}}' ./... | while read -r package dir; do
		if grep -qs "^func $1" "$dir"/*_test.go; then echo "$package $dir"; fi
	done
}

# fuzz_all runs every fuzz target for as many inputs. A number of inputs, and no time: the go
# command now and then takes the end of a time for a failure. It would also build the program of a
# package for one target only. With -fuzz the program tells the fuzzer which lines an input reaches, for
# which all that it imports is compiled once more; a few inputs need no such guide.
fuzz_all() { # INPUTS [-fuzz .]
	local package dir target bad=0 inputs=$1
	shift
	while read -r package dir; do
		go test -vet off -c "$@" -o "$tmp/fuzz.test" "$package"
		for target in $(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*).*/\1/p' "$dir"/*_test.go); do
			echo "$package $target"
			if (cd "$dir" && "$tmp/fuzz.test" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$inputs" \
				-test.fuzzcachedir "$(go env GOCACHE)/fuzz/$package") </dev/null >"$tmp/fuzz.log" 2>&1; then
				grep '^fuzz: elapsed' "$tmp/fuzz.log" | tail -n 1
			else
				cat "$tmp/fuzz.log"
				bad=1
			fi
		done
	done < <(packages_with Fuzz)
	return $bad
}

# skipped_tests prints of each test of a log that was skipped the last thing it said.
skipped_tests() {
	awk '
		/^=== (RUN|NAME|CONT) / { name = $3 }
		/^ +[^ ]+\.go:[0-9]+: / { sub(/^ +/, ""); said[name] = $0 }
		/^ *--- SKIP: /         { print $3 ": " said[$3] }' "$@"
}

# main runs the steps named as arguments, or all, after prepare. Each is a process of its
# own, so that set -e holds in it while the others go on.
main() { # SCRIPT ARGUMENT...
	local script=$1 step began failed=() todo=()
	shift
	if [[ ${1-} == --step ]]; then
		if [[ " prepare ${steps[*]} " != *" $2 "* ]]; then
			echo "no step $2; there are: ${steps[*]}" >&2
			exit 2
		fi
		"step_$2"
		return
	fi
	todo=("$@")
	(($#)) || todo=("${steps[@]}")
	: >"$tmp/skipped"
	rm -f "$tmp"/*.test.log
	for step in prepare "${todo[@]}"; do
		printf '\n== %s\n' "$step"
		began=$SECONDS
		"$script" --step "$step" || failed+=("$step")
		printf -- '-- %s: %d s\n' "$step" $((SECONDS - began))
		[[ ${failed[*]-} == prepare ]] && break
	done
	printf '\n== skipped\n'
	cat "$tmp/skipped"
	compgen -G "$tmp/*.test.log" >/dev/null && skipped_tests "$tmp"/*.test.log
	printf '\n== %d s\n' "$SECONDS"
	if ((${#failed[@]})); then
		printf 'failed: %s\n' "${failed[*]}"
		exit 1
	fi
	echo "all passed"
}

step_prepare() { prepare; }
