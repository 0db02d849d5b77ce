//! What `vta.h` adds to a run: `cargo bench -p vta-capi`. Runs over the header and over the library of Rust take
//! turns in one process; medians of one image of the demo on a thread of the simulator.
#![allow(clippy::unwrap_used, reason = "a bench may panic")]

use std::ffi::c_void;
use std::ptr;
use std::time::{Duration, Instant};

use vta::{
    Type, vta_close, vta_open, vta_options_free, vta_options_new, vta_options_set, vta_read_output,
    vta_run, vta_set_input,
};
use vta_app::{Feed, Model, Session, Target, Values};

const ROUNDS: usize = 1000;

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn main() {
    let mut target = Target::named("sim");
    target.threads = Some(1);
    let mut of_rust = Session::open(Model::open("demo").unwrap(), &target, &()).unwrap();
    let input = of_rust.inputs()[0].clone();
    let image: Vec<f32> = (0..input.len()).map(|i| (i % 97) as f32 / 50.0).collect();

    let mut of_c = ptr::null_mut();
    // SAFETY: texts end with 0, and handles come from the library.
    unsafe {
        let options = vta_options_new();
        let _ = vta_options_set(options, c"threads".as_ptr(), c"1".as_ptr());
        let _ = vta_open(c"demo".as_ptr(), c"sim".as_ptr(), options, &mut of_c);
        vta_options_free(options);
    }
    let mut scores = [0.0f32; 10];
    let (mut rust, mut c, mut around) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS + 100 {
        let began = Instant::now();
        let values = Values::Real((&image[..]).into());
        let name = &*input.name;
        let found = of_rust.run(&[Feed { name, values }], &()).unwrap();
        let real = found.outputs[0].real();
        let took = began.elapsed();
        let began = Instant::now();
        // SAFETY: arrays are as long as is said, and of the types.
        let (set, ran, read, between) = unsafe {
            let (values, room) = (image.as_ptr(), scores.as_mut_ptr());
            let (values, room) = (values.cast::<c_void>(), room.cast::<c_void>());
            let set = vta_set_input(of_c, 0, Type::F32 as i32, values, image.len());
            let before = began.elapsed();
            let ran = vta_run(of_c);
            let after = began.elapsed();
            let read = vta_read_output(of_c, 0, Type::F32 as i32, room, 10);
            (set, ran, read, before + (began.elapsed() - after))
        };
        let all = began.elapsed();
        assert_eq!([set, ran, read].map(|s| s as i32), [0; 3]);
        assert_eq!(real, scores);
        // The first ones load constants and record batches.
        if round >= 100 {
            rust.push(took);
            c.push(all);
            around.push(between);
        }
    }
    // SAFETY: nothing has it any more.
    unsafe { vta_close(of_c) };
    let (rust, c, around) = (median(rust), median(c), median(around));
    println!("library of Rust  {rust:8.1} us a run");
    println!("vta.h            {c:8.1} us a run, {around:.2} us of them setting and reading");
    println!("ratio            {:8.4}", c / rust);
}
