package kubernetes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// retry is how a mirror comes back to an API server that was away: client-go's
// own goes up to half a minute, in which a fleet changes.
var retry = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 1.5, Jitter: 0.3, Steps: 8, Cap: 2 * time.Second}

// mirror keeps what the API server says of one kind of object: T is what read
// makes of one. It implements cache.ReflectorStore, and holds on to the last
// state while the server can't be asked.
type mirror[T any] struct {
	what    string // "pods in llm"
	host    string
	lists   cache.ListerWatcher
	read    func(*unstructured.Unstructured) (T, error)
	changed func()

	mu      sync.Mutex
	objects map[string]T
	broken  map[string]error // objects that can't be read
	synced  bool
	err     error // of the last call
}

// newMirror returns a mirror of the objects that selectors name. changed is
// called after every change and must not block.
func newMirror[T any](client dynamic.Interface, host string, gvr schema.GroupVersionResource, namespace string, selectors metav1.ListOptions, read func(*unstructured.Unstructured) (T, error), changed func()) *mirror[T] {
	m := &mirror[T]{what: gvr.Resource + " in " + namespace, host: host, read: read, changed: changed, objects: map[string]T{}, broken: map[string]error{}}
	resource := client.Resource(gvr).Namespace(namespace)
	choose := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector, o.FieldSelector = selectors.LabelSelector, selectors.FieldSelector
		return o
	}
	m.lists = cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := resource.List(ctx, choose(o))
			if err != nil {
				m.fail(ctx, "list", err)
				return nil, err
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := resource.Watch(ctx, choose(o))
			m.fail(ctx, "watch", err)
			return w, err
		},
	}, client)
	return m
}

// run follows the API server until ctx ends.
func (m *mirror[T]) run(ctx context.Context) {
	quiet, backoff := logr.Discard(), retry
	r := cache.NewReflectorWithOptions(m.lists, &unstructured.Unstructured{}, m, cache.ReflectorOptions{Name: m.what, Logger: &quiet, Backoff: &backoff})
	r.RunWithContext(klog.NewContext(ctx, quiet))
}

// fail notes how a call went; nil is well.
func (m *mirror[T]) fail(ctx context.Context, verb string, err error) {
	if err != nil {
		if ctx.Err() != nil {
			return
		}
		err = explain(verb, m.what, m.host, err)
	}
	m.mu.Lock()
	same := err == nil && m.err == nil
	m.err = err
	m.mu.Unlock()
	if !same {
		m.changed()
	}
}

// state returns what is known, by name. known is false before the first list;
// err is set while the API server can't be asked.
func (m *mirror[T]) state() (objects []T, broken []error, known bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.objects)) {
		objects = append(objects, m.objects[name])
	}
	for _, name := range slices.Sorted(maps.Keys(m.broken)) {
		broken = append(broken, m.broken[name])
	}
	return objects, broken, m.synced, m.err
}

// put reads one object. Requires mu.
func (m *mirror[T]) put(obj any) error {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("%s: %T is not an object", m.what, obj)
	}
	name := u.GetName()
	delete(m.objects, name)
	delete(m.broken, name)
	object, err := m.read(u)
	if err != nil {
		m.broken[name] = fmt.Errorf("%s: %s: %w", m.what, name, err)
		return nil
	}
	m.objects[name] = object
	return nil
}

// Add implements cache.ReflectorStore.
func (m *mirror[T]) Add(obj any) error {
	defer m.changed()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.put(obj)
}

// Update implements cache.ReflectorStore.
func (m *mirror[T]) Update(obj any) error { return m.Add(obj) }

// Delete implements cache.ReflectorStore.
func (m *mirror[T]) Delete(obj any) error {
	defer m.changed()
	m.mu.Lock()
	defer m.mu.Unlock()
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("%s: %T is not an object", m.what, obj)
	}
	delete(m.objects, u.GetName())
	delete(m.broken, u.GetName())
	return nil
}

// Replace implements cache.ReflectorStore: the whole list, at the start and
// after a watch that the server could not resume.
func (m *mirror[T]) Replace(list []any, _ string) error {
	defer m.changed()
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.objects)
	clear(m.broken)
	for _, obj := range list {
		if err := m.put(obj); err != nil {
			return err
		}
	}
	m.synced = true
	return nil
}

// Resync implements cache.ReflectorStore; there is nobody to tell again.
func (m *mirror[T]) Resync() error { return nil }
