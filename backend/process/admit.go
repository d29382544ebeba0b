package process

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
)

// Admit implements pods.Admitter. An owner may use only images of Image.Users, and may set only
// what Image.AllowEnv and Image.AllowArgs allow, unless Options.Trusted says otherwise.
func (r *Runtime) Admit(s pods.Spec, faults *problem.Violations) {
	p := r.policy.Load()
	image, ok := p.images[s.Image]
	switch {
	case !ok: // it may be there when the pod starts, which is an ERROR that names it otherwise
		return
	case !r.mayUse(image, s.Owner):
		faults.Add(problem.BadRequest, "/image", "%v", p.unknown(s, func(i Image) bool { return r.mayUse(i, s.Owner) }))
		return
	}
	r.admit(image, s, faults)
}

// mayUse reports whether an image exists for an owner.
func (r *Runtime) mayUse(i Image, owner string) bool {
	return r.trusts(owner) || slices.Contains(i.Users, owner) || slices.Contains(i.Users, "*")
}

// unknown is the error for an image that does not exist for the owner of s.
func (p *policy) unknown(s pods.Spec, exists func(Image) bool) error {
	var known []string
	for name, image := range p.images {
		if exists(image) {
			known = append(known, name)
		}
	}
	slices.Sort(known)
	return fmt.Errorf("image %q is not known here: pods of this host are processes, and its images are those of the configuration (%s); any other needs a host with a container engine",
		s.Image, strings.Join(known, ", "))
}

func (r *Runtime) admit(image Image, s pods.Spec, faults *problem.Violations) {
	if len(s.Entrypoint) > 0 && len(image.Command) > 0 {
		faults.Add(problem.BadRequest, "/entrypoint", "the image %s is a program of this host, and no other takes its place", s.Image)
	}
	if s.User != "" {
		faults.Add(problem.BadRequest, "/podyard/user", "the image %s is a program of this host, whose configuration says as whom it runs", s.Image)
	}
	if r.trusts(s.Owner) {
		return
	}
	if len(s.Entrypoint)+len(s.Args) > 0 && !image.AllowArgs {
		faults.Add(problem.BadRequest, "/args", "the image %s is a program of this host and takes no args from users", s.Image)
	}
	for _, name := range slices.Sorted(maps.Keys(s.OwnerEnv())) {
		switch {
		case steers(name):
			faults.Add(problem.BadRequest, envPath(name), "the image %s is a program of this host, and %s decides what such a program does: it cannot be set", s.Image, name)
		case !slices.ContainsFunc(image.AllowEnv, func(pattern string) bool { return matchesEnv(pattern, name) }):
			faults.Add(problem.BadRequest, envPath(name), "the image %s is a program of this host and takes no variable %s from users", s.Image, name)
		}
	}
}

// trusts reports whether an owner may ask for any args and variables.
func (r *Runtime) trusts(owner string) bool {
	return owner == "" || r.opts.Trusted != nil && r.opts.Trusted(owner)
}

// checkAdmitted makes the checks of Admit again at the start of a pod, because the pod may be
// older than the image's entry in Options.Images. It may keep its image.
func (r *Runtime) checkAdmitted(s pods.Spec, image Image) error {
	var faults problem.Violations
	r.admit(image, s, &faults)
	return faults.Err(nil)
}

func envPath(name string) string {
	return "/env/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// matchesEnv reports whether an entry of Image.AllowEnv is for a variable.
func matchesEnv(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}

// CheckAllowEnv returns an error for an entry of Image.AllowEnv that would have no effect.
func CheckAllowEnv(entry string) error {
	name, all := strings.CutSuffix(entry, "*")
	switch {
	case name == "" && !all || strings.ContainsAny(name, "=*\x00"):
		return fmt.Errorf("%q is no name of a variable", entry)
	case !all && steers(name): // a prefix may cover such names; they stay refused
		return fmt.Errorf("%s decides what a program does and is never a user's", name)
	}
	return nil
}

func checkImages(images map[string]Image) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(images)) {
		for _, entry := range images[name].AllowEnv {
			if err := CheckAllowEnv(entry); err != nil {
				errs = append(errs, fmt.Errorf("image %q: AllowEnv: %w", name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// steers reports whether a variable decides which code a program loads, what it trusts, or
// whom it talks to. Case is ignored: some programs read both.
func steers(name string) bool {
	name = strings.ToUpper(name)
	return slices.ContainsFunc(steering, func(pattern string) bool { return matchesEnv(pattern, name) })
}

// steering are variables that change what loaders, interpreters, runtimes and common libraries
// do. The list cannot be complete, so every variable is refused unless it is allowed.
var steering = []string{
	// the loader and the C library
	"LD_*", "DYLD_*", "GLIBC_*", "MALLOC_*", "GCONV_*", "GETCONF_*", "LIBPATH", "SHLIB_PATH", "LOCPATH", "NLSPATH",
	"RESOLV_*", "RES_OPTIONS", "HOSTALIASES", "LOCALDOMAIN", "TZDIR", "NSS_*", "ASAN_*", "LSAN_*", "MSAN_*", "TSAN_*", "UBSAN_*",
	// who and where a program is
	"PATH", "HOME", "USER", "LOGNAME", "PWD", "TMPDIR", "TMP", "TEMP", "TEMPDIR", "XDG_*", "SYSTEMROOT", "COMSPEC", "PATHEXT", "APPDATA", "USERPROFILE",
	// shells, and the programs that others start
	"SHELL", "SHELLOPTS", "BASH*", "ENV", "IFS", "PS4", "PROMPT_COMMAND", "CDPATH", "GLOBIGNORE", "ZDOTDIR", "FPATH", "INPUTRC",
	"BROWSER", "EDITOR", "VISUAL", "PAGER", "MANPAGER", "LESS*", "TERMINFO*", "TERMCAP", "SUDO_*", "SYSTEMD_*", "DBUS_*", "NOTIFY_SOCKET", "LISTEN_*",
	// interpreters and runtimes
	"PYTHON*", "PIP_*", "UV_*", "VIRTUAL_ENV", "CONDA_*", "PYENV_*", "JUPYTER_*", "IPYTHON*",
	"NODE_*", "NPM_*", "DENO_*", "BUN_*", "YARN_*", "RUBY*", "GEM_*", "BUNDLE_*", "PERL*", "PHP*", "LUA_*",
	"JAVA_*", "JDK_*", "_JAVA_*", "JVM_*", "CLASSPATH", "DOTNET_*", "CORECLR_*", "COMPLUS_*", "MONO_*",
	"GODEBUG", "GOTRACEBACK", "GOCOVERDIR", "GOMEMLIMIT", "GOGC", "GOMAXPROCS", "GOFLAGS", "GOTOOLCHAIN", "GOROOT", "GOPATH", "CARGO_*", "RUSTC*", "RUSTUP_*",
	"R_*", "RENV_*", "JULIA_*", "ERL_*", "ELIXIR_*", "GUILE_*", "TCL*", "GHC*", "OCAML*", "CAML_*", "MAKEFLAGS", "MAKEFILES",
	// libraries that load others
	"OPENSSL_*", "GTK_*", "GDK_*", "GIO_*", "GST_*", "QT_*", "VK_*", "LIBGL_*", "MESA_*", "__EGL*", "__GL*", "EGL_*", "OCL_*", "OPENCL_*", "LIBVA_*",
	"CUDA_*", "NVIDIA_*", "NCCL_*", "HIP_*", "HSA_*", "ROCM_*", "ROCR_*", "OMP_TOOL*", "TF_*", "TORCHINDUCTOR_*", "TRITON_*", "MAGICK_*",
	// version control, remote shells and certificates
	"GIT_*", "HG*", "SVN_*", "SSH_*", "RSYNC_*", "GNUPG*", "KRB5*", "SASL_*", "DOCKER_*", "KUBECONFIG",
	"SSL_*", "SSLKEYLOGFILE", "CURL_*", "REQUESTS_*", "NETRC", "WGETRC", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "FTP_PROXY", "NO_PROXY", "DISPLAY", "WAYLAND_*", "XAUTHORITY",
	// what this package and the worker protocol promise
	"PODYARD_*", "RUNPOD_WEBHOOK_*", "RUNPOD_REALTIME_*", "RUNPOD_AI_*", "RUNPOD_ENDPOINT_*", "RUNPOD_PUBLIC_IP", "RUNPOD_TCP_PORT_*",
}
