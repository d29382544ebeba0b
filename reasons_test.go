package podyard_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// reasonFiles have the texts that say why a job waits, and what the scaler decided.
var reasonFiles = []string{
	"serverless/why.go",
	"serverless/fleet/calls.go", "serverless/fleet/decide.go", "serverless/fleet/endpoint.go",
	"serverless/fleet/reconcile.go", "serverless/fleet/table.go", "serverless/fleet/worker.go",
}

// hidden are calls whose texts no user reads as a reason.
var hidden = []string{"Error", "Warn", "Info", "Debug", "Errorf", "New", "Newf", "Release"}

func TestEveryReasonWhyAJobWaitsHasARowInTheTable(t *testing.T) {
	rows := waitingRows(t)
	found := 0
	for _, path := range reasonFiles {
		for _, pattern := range reasons(t, path) {
			found++
			re := regexp.MustCompile(pattern)
			if !slices.ContainsFunc(rows, re.MatchString) {
				t.Errorf("%s: the table in docs/trouble.md, \"Why is my job waiting\", has no row for a text like %s", path, pattern)
			}
		}
	}
	if found < 30 {
		t.Errorf("%d texts found, want those of all reasons", found)
	}
}

// waitingRows are the first cells of the table.
func waitingRows(t *testing.T) (rows []string) {
	t.Helper()
	_, section, _ := strings.Cut(text(t, "docs/trouble.md"), "\n## Why is my job waiting\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			rows = append(rows, cells[1])
		}
	}
	return rows
}

// reasons are patterns of the texts of a file that have two words or more.
func reasons(t *testing.T, path string) (patterns []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && slices.Contains(hidden, f.Sel.Name) {
				return false
			}
		case *ast.BinaryExpr:
			if p := pattern(n); isText(p) {
				patterns = append(patterns, p)
				return false
			}
		case *ast.BasicLit:
			if p := pattern(n); n.Kind == token.STRING && isText(p) {
				patterns = append(patterns, p)
			}
		}
		return true
	})
	return patterns
}

var verb = regexp.MustCompile(`%[a-z]`)

// pattern is a text whose parts that vary are ".+".
func pattern(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		if err == nil && e.Kind == token.STRING {
			return verb.ReplaceAllString(regexp.QuoteMeta(s), ".+")
		}
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			return pattern(e.X) + pattern(e.Y)
		}
	}
	return ".+"
}

// isText reports whether a pattern has two words.
func isText(pattern string) bool {
	return regexp.MustCompile(`[a-z]+ [a-z]+`).MatchString(pattern)
}
