;; A proxy-wasm filter in WebAssembly's own text: no SDK, no compiler, no WASI.
;; It speaks ABI 0.2.0, gives memory by "malloc" (always the same block), has no
;; _initialize and leaves out every callback that it does not need.
;;
;;   wat2wasm plain.wat -o plain.wasm      (wabt; the result is committed)
;;
;; A request with a body is held until its end and gets x-plain: yes. A GET
;; recurses for ever; a response with a body reads outside of the memory, one
;; without divides by zero.
(module
  (import "env" "proxy_log" (func $log (param i32 i32 i32) (result i32)))
  (import "env" "proxy_replace_header_map_value"
    (func $set (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "x-plain")
  (data (i32.const 16) "yes")
  (data (i32.const 32) "headers")
  (data (i32.const 48) "body ends")
  (data (i32.const 64) "recursing")
  (func (export "proxy_abi_version_0_2_0"))
  (func (export "malloc") (param i32) (result i32) (i32.const 1024))
  (func (export "proxy_on_context_create") (param i32 i32))
  (func $say (param $at i32) (param $size i32)
    (drop (call $log (i32.const 2) (local.get $at) (local.get $size))))
  (func $forever (param i32) (result i32)
    (i32.add (call $forever (i32.add (local.get 0) (i32.const 1))) (i32.const 1)))
  (func (export "proxy_on_request_headers") (param $id i32) (param $n i32) (param $end i32) (result i32)
    (if (local.get $end)
      (then
        (call $say (i32.const 64) (i32.const 9))
        (return (call $forever (i32.const 0)))))
    (call $say (i32.const 32) (i32.const 7))
    (drop (call $set (i32.const 0) (i32.const 0) (i32.const 7) (i32.const 16) (i32.const 3)))
    (i32.const 0))
  (func (export "proxy_on_request_body") (param $id i32) (param $size i32) (param $end i32) (result i32)
    (if (i32.eqz (local.get $end)) (then (return (i32.const 1))))
    (call $say (i32.const 48) (i32.const 9))
    (i32.const 0))
  (func (export "proxy_on_response_headers") (param $id i32) (param $n i32) (param $end i32) (result i32)
    (if (local.get $end)
      (then (return (i32.div_u (i32.const 1) (i32.eqz (local.get $end))))))
    (i32.const 0))
  (func (export "proxy_on_response_body") (param $id i32) (param $size i32) (param $end i32) (result i32)
    (i32.load (i32.const 0x10000))))
