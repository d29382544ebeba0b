package podyard_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A goFile is a file of a package that others import, or of an example program.
type goFile struct {
	name string // from the root of the repository
	file *ast.File
}

func (s *goFile) example() bool {
	return strings.HasPrefix(s.name, "examples/") || strings.HasPrefix(s.name, "backend/postgres/bench/shop/")
}

// parse reads every Go file of the repository that is no test.
func parse(t *testing.T) (fset *token.FileSet, sources []goFile) {
	t.Helper()
	fset = token.NewFileSet()
	for _, name := range files(t, ".go") {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, goFile{name, f})
	}
	if len(sources) < 100 {
		t.Fatalf("%d files", len(sources))
	}
	return fset, sources
}

func isSelector(e ast.Expr, pkg, name string) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != name {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == pkg
}

// Options have one way to say where logs go: a field Logger, and nothing is logged where it
// is nil. No package reaches for the logger of the program by itself.
func TestLoggersOfOptionsAreAlike(t *testing.T) {
	fset, sources := parse(t)
	found := 0
	for _, s := range sources {
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				fields, ok := n.Type.(*ast.StructType)
				if !ok || !ast.IsExported(n.Name.Name) || s.example() {
					return true
				}
				for _, f := range fields.Fields.List {
					star, ok := f.Type.(*ast.StarExpr)
					if !ok || !isSelector(star.X, "slog", "Logger") || len(f.Names) > 0 && !ast.IsExported(f.Names[0].Name) {
						continue
					}
					found++
					doc := strings.Join(strings.Fields(f.Doc.Text()), " ")
					if !strings.HasSuffix(n.Name.Name, "Options") || len(f.Names) != 1 || f.Names[0].Name != "Logger" ||
						!strings.Contains(doc, "Default: nothing is logged.") {
						t.Errorf("%s: want a field Logger of options, with \"Default: nothing is logged.\" in its comment", fset.Position(f.Pos()))
					}
				}
			case *ast.SelectorExpr:
				if isSelector(n, "slog", "Default") && !s.example() {
					t.Errorf("%s: slog.Default: a nil Logger is slog.DiscardHandler", fset.Position(n.Pos()))
				}
			}
			return true
		})
	}
	if found < 8 {
		t.Errorf("%d loggers of options were found", found)
	}
}

// logKeys are what log lines say beside their message. One thing has one key: what is not
// here needs a line here, and a look at whether it has a key already.
var logKeys = map[string]string{
	"err":      "the error that is the cause",
	"endpoint": "id of an endpoint", "schedule": "id of a schedule", "batch": "id of a batch", "job": "id of a job", "worker": "id of a worker",
	"attempt": "the number of an attempt of a job, from 1", "attempts": "how many attempts a job has", "status": "of a job", "next": "when the next attempt begins",
	"pod": "id of a pod", "host": "id of a host", "user": "a user",
	"image": "an image by name", "network": "a network of an engine", "container": "a container of an engine by name",
	"gpu": "a GPU by UUID", "type": "a type of GPU", "cuda": "a CUDA version", "driver": "of GPUs its version, of an engine the one of its disks",
	"containerd": "whether an engine keeps its images there",
	"delivery":   "id of a webhook's delivery", "service": "a part of the program", "lease": "the name of a lease between servers", "server": "the name of another server",
	"key":    "where in the configuration a key stands, never the key",
	"shard":  "a queue among several by name",
	"method": "of a request", "path": "of a request", "addr": "an address that is listened on", "hostKey": "the public key of a server of SSH", "source": "the address that a request comes from",
	"dir": "a directory", "file": "a file",
	"panic": "what was panicked with", "stack": "of a panic", "reason": "why, in words for users",
	"call": "a method of a runtime", "event": "a step of a state machine", "state": "of a state machine",
	"fails": "failures in a row", "count": "of what the message names", "parts": "of a file", "pods": "a number of pods",
	"by":       "how far the clock jumped",
	"settings": "names of settings", "missing": "what a host lacks",
}

var logMethods = regexp.MustCompile(`^(Debug|Info|Warn|Error)(Context)?$`)

// isLogger reports whether a call on x logs, by the names that loggers have here.
func isLogger(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name == "log"
	case *ast.SelectorExpr:
		return x.Sel.Name == "log" || x.Sel.Name == "Logger"
	}
	return false
}

func TestLogLinesUseTheSameKeys(t *testing.T) {
	fset, sources := parse(t)
	used := map[string]bool{}
	for _, s := range sources {
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			f, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !logMethods.MatchString(f.Sel.Name) || !isLogger(f.X) {
				return true
			}
			rest := call.Args[1:]
			if strings.HasSuffix(f.Sel.Name, "Context") {
				rest = call.Args[2:]
			}
			for i := 0; i < len(rest); i += 2 {
				lit, ok := rest[i].(*ast.BasicLit)
				if !ok {
					t.Errorf("%s: the key of a log line is no literal", fset.Position(rest[i].Pos()))
					continue
				}
				key, err := strconv.Unquote(lit.Value)
				if used[key] = true; err != nil || logKeys[key] == "" {
					t.Errorf("%s: the log key %q is not in the list", fset.Position(lit.Pos()), key)
				}
			}
			return true
		})
	}
	if len(used) < 15 {
		t.Errorf("%d keys were found", len(used))
	}
}

// What works until its context ends returns nil then: an orderly end is no error. The
// packages test that it is so; this finds one that does not promise it.
func TestRunPromisesNilAtAnOrderlyEnd(t *testing.T) {
	fset, sources := parse(t)
	found := 0
	for _, s := range sources {
		if s.example() || strings.HasPrefix(s.name, "internal/") || strings.Contains(path.Dir(s.name), "test") {
			continue
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !slices.Contains([]string{"Run", "Listen", "Serve"}, f.Name.Name) || f.Type.Results.NumFields() != 1 {
				continue
			}
			found++
			if !strings.Contains(strings.Join(strings.Fields(f.Doc.Text()), " "), "returns nil") {
				t.Errorf("%s: the comment of %s does not say when it returns nil", fset.Position(f.Pos()), f.Name.Name)
			}
		}
	}
	if found < 7 {
		t.Errorf("%d functions were found", found)
	}
}

// The names that an embedding program looks for first are where it looks.
func TestTheFourInterfacesHaveTheirNames(t *testing.T) {
	for _, name := range []string{"pods.PodStore", "pods.Runtime", "serverless.JobQueue", "serverless.Worker"} {
		doc, err := exec.CommandContext(t.Context(), "go", "doc", module+"/"+name).Output()
		_, typ, _ := strings.Cut(name, ".")
		if err != nil || !strings.Contains(string(doc), "type "+typ+" ") {
			t.Errorf("go doc %s = %v", name, err)
		}
	}
}
