// Writes crates/kubewright-apiserver/data/types.txt: what Kubernetes' Go modules declare about each built-in type of a
// stable API version, as facts. Comments of the Go sources are not copied, only markers such as +listType=map are read.
//
//	for m in api apimachinery apiextensions-apiserver kube-aggregator; do go mod download k8s.io/$m@v0.36.3; done
//	go run xtask/types.go v0.36.3 > crates/kubewright-apiserver/data/types.txt
//
// The module `types` of kubewright-apimachinery documents and reads the format.
package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
)

type field struct {
	name   string // in JSON; "." where the fields belong to the parent
	omit   string // "?" omitempty, "??" omitzero
	number string // protobuf's, or "-"
	typ    string
	marks  map[string][]string
}

type named struct {
	fields  []field
	of      string // what a type other than a struct stands for
	isEnum  bool
	message bool
	values  []string
	mapType string
	special bool
}

// The types whose JSON form their own methods define.
var special = []string{
	"api/resource.Quantity", "apis/meta/v1.Time", "apis/meta/v1.MicroTime", "apis/meta/v1.Duration", "apis/meta/v1.FieldsV1",
	"pkg/runtime.RawExtension", "util/intstr.IntOrString", "apiextensions/v1.JSON", "apiextensions/v1.JSONSchemaPropsOrArray",
	"apiextensions/v1.JSONSchemaPropsOrBool", "apiextensions/v1.JSONSchemaPropsOrStringArray",
}

var (
	types     = map[string]*named{}
	constants = map[string]string{}
	values    = map[string][]string{} // of constants by type
	referring = map[string][]string{} // the constants of another package that are values of a type
	groups    = map[string]string{}   // by package
	mark      = regexp.MustCompile(`^\s*\+([A-Za-z0-9:._-]+)(?:=(.*))?\s*$`)
	reference = regexp.MustCompile(`[A-Za-z0-9_/.-]+\.[A-Z][A-Za-z0-9]*`)
)

func marks(groups ...*ast.CommentGroup) map[string][]string {
	out := map[string][]string{}
	for _, g := range groups {
		if g == nil {
			continue
		}
		for _, c := range g.List {
			if m := mark.FindStringSubmatch(strings.TrimPrefix(c.Text, "//")); m != nil {
				if v := strings.TrimSpace(m[2]); !slices.Contains(out[m[1]], v) {
					out[m[1]] = append(out[m[1]], v)
				}
			}
		}
	}
	return out
}

type file struct {
	pkg     string
	imports map[string]string
}

func (f file) name(e ast.Expr) string {
	switch t := e.(type) {
	case *ast.Ident:
		switch t.Name {
		case "string", "bool", "int32", "int64", "float64", "byte", "any":
			return t.Name
		}
		return f.pkg + "." + t.Name
	case *ast.SelectorExpr:
		return f.imports[t.X.(*ast.Ident).Name] + "." + t.Sel.Name
	case *ast.StarExpr:
		return "*" + f.name(t.X)
	case *ast.ArrayType:
		return "[]" + f.name(t.Elt)
	case *ast.MapType:
		return "map[" + f.name(t.Key) + "]" + f.name(t.Value)
	case *ast.InterfaceType:
		return "any"
	}
	return "any"
}

func read(dir, pkg string) {
	pkgs, err := parser.ParseDir(token.NewFileSet(), dir, func(i os.FileInfo) bool {
		return !strings.HasSuffix(i.Name(), "_test.go") && !strings.HasPrefix(i.Name(), "zz_") && !strings.HasPrefix(i.Name(), "generated")
	}, parser.ParseComments)
	if err != nil {
		panic(err)
	}
	for _, p := range pkgs {
		for _, source := range p.Files {
			f := file{pkg, map[string]string{}}
			for _, i := range source.Imports {
				path, _ := strconv.Unquote(i.Path.Value)
				name := filepath.Base(path)
				if i.Name != nil {
					name = i.Name.Name
				}
				f.imports[name] = path
			}
			for _, d := range source.Decls {
				g, ok := d.(*ast.GenDecl)
				if !ok {
					continue
				}
				for _, s := range g.Specs {
					switch s := s.(type) {
					case *ast.ValueSpec:
						if len(s.Values) != 1 {
							continue
						}
						value, of := s.Values[0], s.Type
						// A conversion, such as PathType("Exact").
						if call, ok := value.(*ast.CallExpr); ok && len(call.Args) == 1 && of == nil {
							if name, ok := call.Fun.(*ast.Ident); ok {
								value, of = call.Args[0], name
							}
						}
						if name, ok := value.(*ast.SelectorExpr); ok && of != nil && g.Tok == token.CONST {
							referring[f.name(of)] = append(referring[f.name(of)], f.name(name))
							continue
						}
						l, ok := value.(*ast.BasicLit)
						if !ok || l.Kind != token.STRING {
							continue
						}
						v, err := strconv.Unquote(l.Value)
						if err != nil {
							continue
						}
						constants[pkg+"."+s.Names[0].Name] = v
						if s.Names[0].Name == "GroupName" {
							groups[pkg] = v
						}
						if of != nil && g.Tok == token.CONST {
							values[f.name(of)] = append(values[f.name(of)], v)
						}
					case *ast.TypeSpec:
						if s.Name.IsExported() {
							declare(f, g, s)
						}
					}
				}
			}
			// A marker may stand in a comment of its own above the declaration's.
			for _, d := range source.Decls {
				g, ok := d.(*ast.GenDecl)
				if !ok || g.Tok != token.TYPE {
					continue
				}
				t := types[pkg+"."+g.Specs[0].(*ast.TypeSpec).Name.Name]
				for _, c := range source.Comments {
					if t != nil && c.End() < g.Pos() && int(g.Pos()-c.End()) < 4 {
						t.apply(marks(c))
					}
				}
			}
		}
	}
}

// enumerate sets the values of enumerated types.
func enumerate() {
	for name, t := range types {
		v := values[name]
		for _, constant := range referring[name] {
			if value, ok := constants[constant]; ok {
				v = append(v, value)
			}
		}
		if t.isEnum {
			sort.Strings(v)
			t.values = slices.Compact(v)
		}
	}
}

func (t *named) apply(m map[string][]string) {
	if _, ok := m["enum"]; ok {
		t.isEnum = true
	}
	if _, ok := m["protobuf.nullable"]; ok {
		t.message = true
	}
	for _, k := range []string{"structType", "mapType"} {
		if v := m[k]; len(v) > 0 {
			t.mapType = v[0]
		}
	}
}

// keepsEmpty are the lists that Kubernetes' defaulting distinguishes from absent ones if they are empty.
var keepsEmpty = []string{"k8s.io/api/autoscaling/v2.HPAScalingRules.policies"}

func declare(f file, g *ast.GenDecl, s *ast.TypeSpec) {
	t := &named{}
	full := f.pkg + "." + s.Name.Name
	types[full] = t
	t.apply(marks(g.Doc, s.Doc))
	for _, one := range special {
		t.special = t.special || strings.HasSuffix(full, one)
	}
	st, ok := s.Type.(*ast.StructType)
	if !ok {
		t.of = f.name(s.Type)
		return
	}
	for _, fd := range st.Fields.List {
		if fd.Tag == nil {
			continue
		}
		raw, _ := strconv.Unquote(fd.Tag.Value)
		tag := reflect.StructTag(raw)
		j := strings.Split(tag.Get("json"), ",")
		if j[0] == "-" {
			continue
		}
		x := field{name: j[0], number: "-", typ: f.name(fd.Type), marks: marks(fd.Doc, fd.Comment)}
		if x.name == "" {
			x.name = "."
		}
		if slices.Contains(j, "omitzero") {
			x.omit = "??"
		} else if slices.Contains(j, "omitempty") {
			x.omit = "?"
		}
		if pb := strings.Split(tag.Get("protobuf"), ","); len(pb) > 1 {
			x.number = pb[1]
		}
		for _, k := range []string{"patchStrategy", "patchMergeKey"} {
			if v := tag.Get(k); v != "" {
				x.marks[k] = []string{v}
			}
		}
		if slices.Contains(keepsEmpty, full+"."+x.name) {
			x.marks["empty"] = []string{""}
		}
		t.fields = append(t.fields, x)
	}
}

func openapi(pkg string) string {
	first, rest, _ := strings.Cut(pkg, "/")
	parts := strings.Split(first, ".")
	slices.Reverse(parts)
	return strings.Join(parts, ".") + "." + strings.ReplaceAll(rest, "/", ".")
}

// line returns a field's line.
func (x field) line(pkg string) string {
	out := x.number + " " + x.name + x.omit + " " + local(x.typ, pkg)
	first := func(k string) string {
		if v := x.marks[k]; len(v) > 0 {
			return v[0]
		}
		return ""
	}
	_, optional := x.marks["optional"]
	_, required := x.marks["required"]
	if optional && x.omit == "" {
		out += " optional"
	}
	if required && x.omit != "" {
		out += " required"
	}
	list := first("listType")
	if list == "" {
		list = first("k8s:listType")
	}
	if list == "map" {
		keys := x.marks["listMapKey"]
		if len(keys) == 0 {
			keys = x.marks["k8s:listMapKey"]
		}
		list += ":" + strings.Join(keys, ",")
	}
	kind := first("mapType")
	if kind == "" {
		kind = first("structType")
	}
	fallback := first("default")
	if name, ok := strings.CutPrefix(fallback, "ref("); ok {
		v, _ := json.Marshal(constants[pkg+"."+strings.TrimSuffix(name, ")")])
		fallback = string(v)
	}
	for _, m := range [][2]string{{"list", list}, {"map", kind}, {"patch", first("patchStrategy")}, {"key", first("patchMergeKey")}, {"default", fallback}} {
		if m[1] != "" {
			out += " " + m[0] + "=" + m[1]
		}
	}
	if _, ok := x.marks["empty"]; ok {
		out += " empty"
	}
	return out
}

// local shortens the names of types: those of the same package lose it, those of others have its OpenAPI name.
func local(typ, pkg string) string {
	return reference.ReplaceAllStringFunc(strings.ReplaceAll(typ, "[]byte", "bytes"), func(name string) string {
		at := strings.LastIndex(name, ".")
		switch {
		case name[:at] == pkg:
			return name[at+1:]
		case name == "k8s.io/apimachinery/pkg/types.UID":
			return "uid"
		}
		return openapi(name[:at]) + name[at:]
	})
}

func main() {
	version := os.Args[1]
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		panic(err)
	}
	stable := regexp.MustCompile(`/v[0-9]+$`)
	for module, only := range map[string]string{"k8s.io/api": "", "k8s.io/apimachinery": "pkg/apis/meta/v1,pkg/util/intstr,pkg/api/resource,pkg/runtime", "k8s.io/apiextensions-apiserver": "pkg/apis/apiextensions/v1", "k8s.io/kube-aggregator": "pkg/apis/apiregistration/v1"} {
		root := filepath.Join(strings.TrimSpace(string(cache)), module+"@"+version)
		if only != "" {
			for _, p := range strings.Split(only, ",") {
				read(filepath.Join(root, p), module+"/"+p)
			}
			continue
		}
		dirs, _ := filepath.Glob(filepath.Join(root, "*", "v*"))
		for _, d := range dirs {
			if rel, _ := filepath.Rel(root, d); stable.MatchString(d) {
				read(d, module+"/"+rel)
			}
		}
	}

	enumerate()

	// Only kinds and options, and all types that they refer to.
	var wanted []string
	for name, t := range types {
		for _, x := range t.fields {
			if x.name == "." && strings.HasSuffix(x.typ, "meta/v1.TypeMeta") {
				wanted = append(wanted, name)
			}
		}
	}
	found := map[string]bool{}
	for len(wanted) > 0 {
		name := wanted[0]
		wanted = wanted[1:]
		t := types[name]
		if t == nil || found[name] {
			continue
		}
		found[name] = true
		if t.special && !strings.Contains(name, "JSONSchemaPropsOr") {
			continue
		}
		for _, x := range t.fields {
			wanted = append(wanted, reference.FindAllString(x.typ, -1)...)
		}
		wanted = append(wanted, reference.FindAllString(t.of, -1)...)
	}
	names := make([]string, 0, len(found))
	for name := range found {
		names = append(names, name)
	}
	sort.Strings(names)
	fmt.Printf("# The built-in types of Kubernetes, by xtask/types.go from the Go modules %s.\n", version)
	last := ""
	for _, name := range names {
		at := strings.LastIndex(name, ".")
		pkg, short := name[:at], name[at+1:]
		if pkg != last {
			last = pkg
			group, ok := groups[pkg]
			if !ok {
				group = "-"
			} else if group == "" {
				group = "core"
			}
			fmt.Printf("package %s %s\n", openapi(pkg), group)
		}
		t := types[name]
		switch {
		case t.special:
			fmt.Printf("special %s\n", short)
		case t.fields == nil && t.of == "":
			fmt.Printf("struct %s\n", short)
		case t.message:
			fmt.Printf("message %s %s\n", short, local(t.of, pkg))
		case t.of != "":
			fmt.Printf("alias %s %s", short, local(t.of, pkg))
			if len(t.values) > 0 {
				text, _ := json.Marshal(t.values)
				fmt.Printf(" %s", text)
			}
			fmt.Println()
		default:
			fmt.Printf("struct %s", short)
			if t.mapType != "" {
				fmt.Printf(" map=%s", t.mapType)
			}
			fmt.Println()
			for _, x := range t.fields {
				fmt.Println(x.line(pkg))
			}
		}
	}
}
