"""What a diagnosis says besides its class: the numbers, versions and names that stand in the log."""

import re
import time
from pathlib import Path

import msgspec
import pytest
from diagnosed import said

from tui_train.diagnose.failure_details import load_details
from tui_train.diagnose.required_words import required_words
from tui_train.diagnose.signatures import load_signatures
from tui_train.diagnose.traceback_lines import library_of_file
from tui_train.diagnose.types import HEADING_BY_FAILURE, failure_heading

NAMED = [
    ("ValueError: The specified `pad_token` ('<pad>') is not found in the vocabulary of the given `processing_class`.",
     "tokenizer_pad_token", ("or not the one that is named",)),
    ("UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040).",
     "cuda_driver_too_old", ("CUDA 11.4", "CUDA 11.4 or older")),
    ("NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.",
     "no_kernel_image", ("NVIDIA GeForce RTX 5090 (sm_120)", "CUDA 12.8 or later")),
    (("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 23.69 GiB "
     "of which 3.01 GiB is free."), "cuda_oom", ("GPU 1", "2.00 GiB", "3.01 GiB of 23.69 GiB", "Enough was free")),
    (("RuntimeError: size mismatch for model.embed_tokens.weight: copying a param with shape torch.Size([32000, 64]) "
     "from checkpoint, the shape in current model is torch.Size([32064, 64])."),
     "checkpoint_mismatch", ("the vocabulary of model.embed_tokens.weight is 32000 in it and 32064 in the model",)),
    (("RuntimeError: Error(s) in loading state_dict for PeftModel:\n\tsize mismatch for "
     "m.q_proj.lora_B.default.weight: copying a param with shape torch.Size([64, 16]) from checkpoint, the shape in "
     "current model is torch.Size([64, 8])."), "checkpoint_mismatch", ("rank of the adapter", "16", "8")),
    (("AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * "
     "gradient_acc_step * world_size 256 != 2 * 18 * 7"), "batch_config", ("256", "2 a GPU x 18", "252")),
    ("ValueError: generation_batch_size (6) must be divisible by num_generations (4).", "batch_config",
     ("4 or 8", "a divisor of 6")),
    (('Traceback (most recent call last):\n  File "/env/lib/python3.11/site-packages/trl/trainer/grpo_trainer.py", '
      "line 1500, in _calculate_rewards\n    raise ValueError(\nValueError: The reward function 'score' returned 7 "
      "rewards, but 8 were expected (one per prompt-completion pair)."), "config_invalid",
     ("The reward score returned 7 values for 8 answers", "one number for each of `completions`")),
    ("torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. 1/2 clients joined.",
     "rendezvous_timeout", ("1 of 2 processes joined",)),
    (("[E1120 socket.cpp:1028] [c10d] The client socket has timed out after 6000ms while trying to connect to "
     "(10.0.0.5, 29515)."), "master_unreachable", ("10.0.0.5", "nc -zv 10.0.0.5 29515")),
    (("[W socket.cpp:464] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in "
     "use)."), "port_in_use", ("Port 29500", "sport = :29500")),
    (("RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 1800000ms for recv operation to "
     "complete"), "collective_timeout", ("30 min", "1800 s")),
    ("start.sh: line 4: srun: command not found", "command_not_found", ("no srun here", "without Slurm")),
    ("start.sh: line 4: ninja: command not found", "command_not_found", ("ninja", "its absolute path")),
    # Where the script lies, and what it is called, is not what was not found.
    ("train.sbatch: line 9: torchrun: command not found", "command_not_found", ("command torchrun is not",)),
    ("/home/ann/srun/start.sh: line 9: ninja: command not found", "command_not_found", ("command ninja is not",)),
    ("FileNotFoundError: [Errno 2] No such file or directory: 'srun'", "command_not_found", ("no srun here",)),
    ("slurmstepd: error: execve(): srun: No such file or directory", "command_not_found", ("no srun here",)),
    ("sbatch: fatal: Could not establish a configuration source", "slurm_controller", ("SLURM_CONF",)),
    ("run.sh: line 5: --lr=1e-4: command not found", "command_not_found", ("The option --lr stands",)),
    ("/.singularity.d/actions/exec: 9: exec: --nv: not found", "command_not_found", ("The option --nv", "before")),
    ("train.py: error: argument --lr: invalid float value: '1e-3x'", "user_args", ("--lr", "1e-3x", "does not take")),
    (("train.py: error: argument --optim: invalid choice: 'adam' (choose from 'sgd', 'adamw')"), "user_args",
     ("--optim", "choose from 'sgd', 'adamw'")),
    ("Error: Invalid value for '--epochs': 'three' is not a valid integer.", "user_args", ("--epochs", "'three'")),
    ("ValueError: optimizer got an empty parameter list", "no_trainable_grad", ("no parameters", "nn.ModuleList")),
    (("TypeError: default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found <class "
     "'NoneType'>"), "collate_shape", ("None stands", "leave such rows out")),
    (("RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn"), "no_trainable_grad",
     ("adapter", "argmax")),
    (('  File "/env/lib/python3.10/site-packages/triton/compiler.py", line 1169, in _build\n    ret = check_call(cmd)\n'
      "subprocess.CalledProcessError: Command '['/usr/bin/gcc', 'main.c']' returned non-zero exit status 1."),
     "triton_compile", ("python3-dev",)),
    ("TypeError: TrainingArguments.__init__() got an unexpected keyword argument 'evaluation_strategy'",
     "api_mismatch", ("TrainingArguments", "Use eval_strategy")),
    ("TypeError: SFTTrainer.__init__() got an unexpected keyword argument 'dataset_text_field'",
     "api_mismatch", ("SFTConfig(dataset_text_field=…)",)),
    (("ImportError: huggingface-hub>=0.30.0,<1.0 is required for a normal functioning of this module, but found "
     "huggingface-hub==1.2.0."), "import_mismatch", ("is required", "'huggingface-hub>=0.30.0,<1.0'")),
    ("httpx2.HTTPStatusError: Client error '429 Too Many Requests' for url 'http://h/O/M/resolve/main/config.json'",
     "hub_network", ("429", "HF_TOKEN")),
    (("huggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested files in the disk cache and outgoing "
     "traffic has been disabled."), "hub_network", ("offline", "hf download")),
    (("ValueError: Please correct the following DeepSpeed config values that mismatch TrainingArguments values:\n"
     "- ds train_micro_batch_size_per_gpu=1 vs hf per_device_train_batch_size=4"),
     "deepspeed_config_mismatch", ("train_micro_batch_size_per_gpu: 1", "per_device_train_batch_size: 4")),
    (("ValueError: Expected query, key, and value to have the same dtype, but got query.dtype: torch.float32, "
     "key.dtype: torch.bfloat16, and value.dtype: torch.bfloat16 instead."), "user_exception",
     ("Tensors of different dtypes", "torch.autocast")),
    (("ValueError: RNN input dtype (torch.bfloat16) does not match weight dtype (torch.float32). Convert input: "
     "input.to(torch.float32), or convert model: model.to(torch.bfloat16)"), "user_exception",
     ("Tensors of different dtypes",)),
    ("RuntimeError: expected scalar type Half but found Float", "user_exception", ("Tensors of different dtypes",)),
    ("ValueError: Expected input batch_size (32) to match target batch_size (16).", "user_exception",
     ("shapes do not fit", "Print the shapes")),
    ("RuntimeError: The size of tensor a (512) must match the size of tensor b (1024) at non-singleton dimension 1",
     "user_exception", ("shapes do not fit", "(512) must match")),
    (("ValueError: DistributedDataParallel device_ids and output_device arguments only work with "
     "single-device/multiple-device GPU modules or CPU modules, but got device_ids [0], output_device 0, and module "
     "parameters {device(type='cpu')}."), "user_exception", ("the model is on the CPU", "model.to(local_rank)")),
    ("RuntimeError: The shape of the 2D attn_mask is torch.Size([64, 64]), but should be (32, 32).", "user_exception",
     ("shapes do not fit",)),
    (("ValueError: block_mask was created for block_mask.shape=(1, 1, 128, 128) but got q_len=256 and kv_len=256. As "
     "the block mask was created for a smaller length than you're using it for, you likely need to create a new block "
     "mask."), "user_exception", ("shapes do not fit",)),
    ("RuntimeError: Parent directory out/ckpt does not exist.", "missing_file", ("out/ckpt", "os.makedirs")),
    ("RuntimeError: [enforce fail at inline_container.cc:595] . open file failed with strerror: Read-only file system",
     "permission_denied", ("output folder that you own",)),
    (
        ("/env/torch/include/torch/csrc/inductor/cpp_prefix.h:1490:2: fatal error: error closing /small/ccBVkmBp.s: No "
        "space left on device"),
        "disk_full",
        ("temporary files is full (/small/)", "TMPDIR"),
    ),
    ("ValueError: num_attention_heads (6) must be a multiple of tensor_model_parallel_size (4).",
     "megatron_config", ("num_attention_heads is 6", "tensor_model_parallel_size 4")),
    ("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 5e000", "nccl_duplicate_gpu",
     ("Ranks 1 and 0", "5e000")),
    ("OSError: [Errno 122] Disk quota exceeded: 'out/model.pt'", "disk_full", ("quota", "out/model.pt", "quota -s")),
    (("RuntimeError: [enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory: you tried to "
     "allocate 68719476736 bytes. Error code 12"), "host_alloc_failed", ("64.0 GiB",)),
    (("ValueError: --load_best_model_at_end requires the saving steps to be a multiple of the evaluation steps, but "
     "found 500, which is not a multiple of 200."), "config_invalid", ("500, which is not", "as the message says")),
    ("ImportError: Using the `Trainer` with `PyTorch` requires `accelerate>=1.1.0`: Please run `pip install x`",
     "missing_module", ("module accelerate", "pip install 'accelerate>=1.1.0'")),
    ('yaml.scanner.ScannerError: mapping values are not allowed here\n  in "c.yaml", line 2, column 8',
     "config_invalid", ("c.yaml is no valid YAML at line 2, column 8: mapping values are not allowed here",)),
    (('yaml.parser.ParserError: while parsing a block mapping\n  in "c.yaml", line 1, column 1\nexpected <block end>, '
     'but found \'<scalar>\'\n  in "c.yaml", line 3, column 3'), "config_invalid",
     ("at line 3, column 3: expected <block end>",)),
    (("yaml.scanner.ScannerError: while scanning for the next token\nfound character '\\t' that cannot start any "
     'token\n  in "c.yaml", line 2, column 1'), "config_invalid", ("line 2, column 1: found character",)),
    ("RuntimeError: ProcessGroupGloo::allgather: invalid tensor size at index 0 (expected (3), got (2))",
     "user_exception", ("allgather", "shapes do not fit")),
    (("RuntimeError: Trying to backward through the graph a second time (or directly access saved tensors after "
     "they have already been freed)."), "user_exception", (".detach()",)),
    ("AttributeError: module 'numpy' has no attribute 'int'.", "import_mismatch", ("np.int", "numpy<1.24")),
    ("PIL.UnidentifiedImageError: cannot identify image file 'a/b.jpg'", "bad_data", ("a/b.jpg is no image",)),
    ("ERROR: The function received no value for the required argument: data\nUsage: t.py DATA <flags>", "user_args",
     ("data",)),
    ("ERROR: Could not consume arg: --rate=1\nUsage: t.py -", "user_args", ("does not take --rate=1.",)),
    ("│ Missing argument 'DATA'.                                     │", "user_args", ("DATA",)),
    ("KeyError: 'model_state_dict'", "checkpoint_mismatch", ("has no entry model_state_dict",)),
    ("KeyError: 'Trying to restore optimizer state but checkpoint contains only the model.'", "checkpoint_mismatch",
     ("has no optimizer state", "weights alone")),
    (('Traceback (most recent call last):\n  File "/w/own.py", line 9, in tokenize\n    return tok(example["txt"])\n'
      "KeyError: 'txt'"), "user_exception", ("looks for 'txt'", "a column of the data")),
    (('Traceback (most recent call last):\n  File "/env/lib/python3.11/site-packages/datasets/builder.py", line 1606, '
      "in _prepare_split_single\n    for key, record in generator:\nOddError: it is odd\nThe above exception was the "
      "direct cause of the following exception:\nTraceback (most recent call last):\n"
      '  File "/w/own.py", line 3, in <module>\n    load()\n'
      "datasets.exceptions.DatasetGenerationError: An error occurred while generating the dataset"),
     "user_exception", ("OddError: it is odd", "read the data")),
    (('Traceback (most recent call last):\n  File "/w/own.py", line 9, in <module>\n    load()\n  File "/c/modules/'
      'transformers_modules/o/m/modeling_m.py", line 7, in forward\n    n = cache.get_max_length()\n'
      "AttributeError: 'DynamicCache' object has no attribute 'get_max_length'"), "api_mismatch",
     ("the model's own code", "config.json names (transformers_version)")),
    (('Traceback (most recent call last):\n  File "/w/env/lib/python3.11/site-packages/any/a.py", line 7, in plan\n'
      '    raise KeyError("it cannot do it in this way")\nKeyError: \'it cannot do it in this way\''), "user_exception",
     ("Leave out or replace",)),
    (('Traceback (most recent call last):\n  File "/w/own.py", line 9, in main\n    print(model.module.h)\n'
      "AttributeError: 'Net' object has no attribute 'module'"), "user_exception",
     ("takes Net for a wrapped model", "at line 9 of /w/own.py")),
    (("nvcc fatal   : Value 'c++17' is not defined for option 'std'\n"
      "RuntimeError: Error building extension 'fused_adam'"), "extension_abi_mismatch", ("does not know c++17",)),
    (("x.h:132:2: error: #error -- unsupported GNU version! gcc versions later than 11 are not supported!\n"
      "RuntimeError: Error building extension 'fused_adam'"), "extension_abi_mismatch", ("CC=gcc-11",)),
    (("CondaError: Run 'conda init' before 'conda activate'\nTraceback (most recent call last):\n"
      '  File "/w/own.py", line 1, in <module>\n    import torch\nModuleNotFoundError: No module named \'torch\''),
     "command_not_found", ("conda environment was not activated",)),
    (('Traceback (most recent call last):\n  File "/env/lib/python3.11/site-packages/mmengine/r.py", line 9, in build\n'
      "    raise KeyError(\nKeyError: 'Net is not in the mmdet::model registry'"), "config_invalid",
     ("mmengine does not know a name", "newer than the installed mmengine")),
    (("ValueError: DistributedDataParallel device_ids and output_device arguments only work with "
      "single-device/multiple-device GPU modules or CPU modules, but got device_ids [1], output_device 1, and module "
      "parameters {device(type='cuda', index=0), device(type='cuda', index=1)}."), "user_exception",
     ("spread over several", 'device_map={"": local_rank}')),
    (("RuntimeError: expected there to be only one unique element in <generator object Init."
      "_convert_to_deepspeed_param.<locals>.all_gather_coalesced.<locals>.<genexpr> at 0x7f>"), "fsdp_mixed_dtype",
     ("4 or 8 bit", "ZeRO 2")),
    (('Traceback (most recent call last):\n  File "/w/own.py", line 9, in main\n    load()\n'
      "OddError: Odd: The tokenizer `../m`\ndoes not have a part for generation purposes.\nPlease file a bug!"),
     "user_exception", ("`../m` does not have a part for generation purposes.",)),
    (("ImportError: cannot import name 'builder' from 'google.protobuf.internal' (/env/lib/python3.11/site-packages/"
      "google/protobuf/internal/__init__.py)"), "import_mismatch", ("google.protobuf.internal has no builder",)),
    ("[2026-01-02 10:00:00] [INFO] Unable to load the random states, exiting. Specify --no-load-rng", "user_exception",
     ("last trouble that it told", "--no-load-rng")),
    ("ValueError: remaining_argv: ['--rate', '1']", "user_args", ("does not take --rate.",)),
    ("AttributeError: 'DeepSpeedEngine' object has no attribute 'config'", "api_mismatch",
     ("on the wrapper DeepSpeedEngine", "unwrap_model(model).config")),
    ("RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable", "cuda_oom_other_process",
     ("compute mode exclusive", "nvidia-smi")),
    ("/usr/bin/ld: cannot find -lcuda: No such file or directory", "triton_compile", ("libcuda.so", "LIBRARY_PATH")),
    ("TypeError: own() takes 3 positional arguments but 4 were given", "api_mismatch", ("gives own() more or fewer",)),
    ("Error: No such option '--rate'.", "user_args", ("does not take --rate.",)),
    ("Error: No such option '--net.rate'. Did you mean '--rate'?", "user_args", ("does not take --net.rate.",)),
    ("torch._inductor.exc.InductorError: InvalidCxxCompiler: No working C++ compiler found in x: (None, 'g++')",
     "triton_compile", ("no C++ compiler", "CXX")),
    (("stty: 'standard input': Inappropriate ioctl for device\nTraceback (most recent call last):\n  File "
     '"/w/utils.py", line 45, in <module>\n    _, width = os.popen("stty size").read().split()\n'
     "ValueError: not enough values to unpack (expected 2, got 0)"), "user_exception",
     ("how large its terminal is", "line 45 of /w/utils.py")),
    (("RuntimeError: Error downloading train.gz:\nTried https://data.example.com/mnist/, got:\n"
     "<urlopen error [Errno -2] Name or service not known>"), "hub_network", ("data.example.com", "the script looks")),
    (("urllib3.exceptions.MaxRetryError: HTTPSConnectionPool(host='raw.example.com', port=443): Max retries exceeded "
     "with url: /train.txt (Caused by NameResolutionError(\"Failed to resolve 'raw.example.com'\"))"), "hub_network",
     ("raw.example.com",)),
    (("requests.exceptions.ConnectionError: HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded "
     "with url: /x (Caused by NameResolutionError(\"Failed to resolve 'huggingface.co'\"))"), "hub_network",
     ("model hub", "hf download")),
    ("RuntimeError: WandbCallback requires wandb to be installed. Run `pip install wandb`.", "missing_module",
     ("module wandb", "pip install wandb")),
    ("RuntimeError: TrackioCallback requires trackio to be installed. Run `pip install trackio`.", "missing_module",
     ("module trackio", "pip install trackio")),
    ("ImportError: You need to install `galore_torch` to use it. Install it with `pip install git+https://h`",
     "missing_module", ("module galore_torch", "on PYTHONPATH")),
    ("ImportError: You passed `peft_config` but the `peft` library is not installed. `pip install trl[peft]`.",
     "missing_module", ("pip install peft",)),
    ("ImportError: \nLlamaTokenizer requires the SentencePiece library but it was not found in your environment. Check",
     "missing_module", ("pip install sentencepiece",)),
    ("ImportError: Loading an FP8 quantized model requires accelerate (`pip install accelerate`)", "missing_module",
     ("pip install accelerate",)),
    ("ImportError: FlashAttention2 has been toggled on: the package for FlashAttention2 doesn't seem to be installed.",
     "missing_module", ("flash-attn", 'attn_implementation="sdpa"')),
    (("pkg_resources.VersionConflict: (datasets 1.0 (/env/lib), Requirement.parse('datasets<4,>=2'))"),
     "import_mismatch", ("'datasets<4,>=2'",)),
    ("ValueError: Tensor parallelism requires `peft` version 0.31.4 or higher.", "import_mismatch",
     ("peft 0.31.4 or newer",)),
    ("ImportError: Your transformers version is too old, please upgrade it to >= 4.53.1", "import_mismatch",
     ("transformers >= 4.53.1", "'transformers>=4.53.1'")),
    ("ImportError: Found an incompatible version of torchao. Found version 0.4.0, but only versions above 0.16.0.",
     "import_mismatch", ("torchao 0.4.0", "0.16.0 or newer")),
    (("ValueError: The checkpoint you are trying to load has model type `new9` but Transformers does not recognize "
     "this architecture."), "import_mismatch", ("models of the type new9", "pip install -U transformers")),
    ("TypeError: LoraConfig.__init__() got an unexpected keyword argument 'new_one'", "api_mismatch",
     ("a newer PEFT", "new_one from adapter_config.json")),
    ("TypeError: OwnTrainer.compute_loss() got an unexpected keyword argument 'num_items_in_batch'", "api_mismatch",
     ("passes OwnTrainer.compute_loss() more", "num_items_in_batch=None")),
    (("datasets.exceptions.DatasetNotFoundError: Dataset 'o/d' is a gated dataset on the Hub. You must be authenticated"
     " to access it."), "hub_auth", ("o/d is gated", "huggingface.co/datasets/o/d")),
    (("huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': "
     "'/data/m'. Use `repo_type` argument if needed."), "hub_not_found", ("/data/m is neither a folder",)),
    (("huggingface_hub.errors.RevisionNotFoundError: 404 Client Error. (Request ID: a)\n\nRevision Not Found for "
     "url: https://huggingface.co/gpt2/resolve/v9/config.json.\nInvalid rev id: v9"), "hub_not_found",
     ("has gpt2, but no revision v9", "https://huggingface.co/gpt2 ")),
    (("huggingface_hub.errors.RevisionNotFoundError: 404 Client Error. (Request ID: a)\n\nRevision Not Found for "
     "url: https://huggingface.co/api/models/o/m/revision/v9.\nInvalid rev id: v9"), "hub_not_found",
     ("has o/m, but no revision v9",)),
    (("huggingface_hub.errors.EntryNotFoundError: 404 Client Error. (Request ID: a)\n\nEntry Not Found for url: "
     "https://huggingface.co/gpt2/resolve/main/sub/x.json."), "hub_not_found",
     ("has gpt2, but no file sub/x.json in its revision main",)),
    (("huggingface_hub.errors.RepositoryNotFoundError: 404 Client Error. (Request ID: a)\n\nRepository Not Found "
     "for url: https://huggingface.co/gpt9/resolve/main/config.json."), "hub_not_found", ("has no gpt9 (",)),
    (("huggingface_hub.errors.RepositoryNotFoundError: 404 Client Error. (Request ID: a)\n\nRepository Not Found "
     "for url: https://huggingface.co/datasets/o/d/resolve/main/x.json."), "hub_not_found", ("has no o/d (",)),
    ("OSError: Can't load tokenizer for '/models/m'. If you were trying to load it from the Hub, check it.",
     "hub_not_found", ("or a file of it is missing: /models/m", "tokenizer)")),
    ("OSError: o/m does not appear to have a file named config.json. Checkout 'https://h/o/m/tree/main' for files.",
     "hub_not_found", ("o/m has no config.json",)),
    ("ValueError: You can't train a model that has been loaded in 8-bit or 4-bit precision on a different device than",
     "offloaded_model_move", ("quantized model", "local_process_index")),
    ("ValueError: Tried to launch on distributed with multinode, but `MASTER_ADDR` env was not set, please try",
     "launcher_arg_mismatch", ("MASTER_ADDR is not set",)),
    (("pydantic_core._pydantic_core.ValidationError: 1 validation error for DeepSpeedZeroConfig\nstage3_bucket\n  Must "
     "be an integer [type=int_type, input_value=1.5, input_type=float]"), "deepspeed_config_mismatch",
     ("stage3_bucket is 1.5",)),
    (("ValueError: Target module OwnLinear(\n  (linear): Linear(in_features=8, out_features=8)\n) is not supported. "
     "Currently, only the following modules are supported: `torch.nn.Linear`."), "lora_target_modules", ("OwnLinear",)),
    (("torch.utils.checkpoint.CheckpointError: torch.utils.checkpoint: A different number of tensors was saved during "
     "the original forward and recomputation."), "user_exception", ("a second time", '"use_reentrant": True')),
    ("pyarrow.lib.ArrowInvalid: Column 3 named input_ids expected length 1000 but got length 1481", "user_exception",
     ("1481 values in the column input_ids for 1000 rows", "remove_columns")),
    ("TypeError: TextEncodeInput must be Union[TextInputSequence, Tuple[InputSequence, InputSequence]]", "bad_data",
     ("not text",)),
    (("ValueError: No columns in the dataset match the model's forward method signature: (input_ids, labels). The "
     "following columns have been ignored: [question, answer]."), "empty_dataset", ("question, answer", "input_ids")),
    ("RuntimeError: Evaluation hit an out-of-memory error. `auto_find_batch_size` only adjusts the training batch size",
     "cuda_oom", ("in evaluation", "per_device_eval_batch_size")),
    ("FileNotFoundError: Expected /no/such/prefix.bin to exist.", "missing_file", ("not exist: /no/such/prefix.bin.",)),
    (("ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, got 88 "
     "from PyObject"), "import_mismatch", ("another NumPy", "--force-reinstall")),
    ("FileNotFoundError: Dataset '/d/data.yaml' images not found, missing path '/data/sets/images/val'",
     "missing_file", ("/d/data.yaml describes the data", "(/data/sets/images/val)", "`path:`")),
    ("FileNotFoundError: /d/data.yaml 'test:' images not found ❌", "missing_file", ("/d/data.yaml", "(test:)")),
    ("torch._dynamo.exc.FailOnRecompileLimitHit: recompile_limit reached with fullgraph=True. Excessive recompilations",
     "triton_compile", ("again and again", "dynamic=True", "TORCH_LOGS=recompiles")),
    ("torch._dynamo.exc.Unsupported: Data-dependent branching", "triton_compile",
     ("one graph: Data-dependent branching", "torch.compiler.disable")),
    ("ValueError: Cannot flatten integer dtype tensors", "fsdp_mixed_dtype", ("uint8", "bnb_4bit_quant_storage")),
    ("RuntimeError: Pin memory thread exited unexpectedly", "dataloader_worker", ("pin_memory=False", "--ipc=host")),
    (("FATAL:   While making image from oci registry: error fetching image to cache: while building SIF from layers: "
     "unpack layer: write /tmp/build-temp-2/rootfs/a.so: no space left on device"), "disk_full", ("APPTAINER_TMPDIR",)),
    ("docker: failed to register layer: write /opt/a.so: no space left on device.", "disk_full",
     ("Docker or Podman", "prune")),
    ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "disk_full",
     ("pip had no room", "TMPDIR")),
    ("run.sh: line 8: 22114 Illegal instruction     (core dumped) python train.py", "segfault",
     ("newer or another one", "lscpu")),
    ("torch.distributed.elastic: failed (exitcode: -4)\n  exitcode  : -4 (pid: 7)", "segfault", ("lscpu",)),
    (("omegaconf.errors.InterpolationKeyError: Interpolation key 'paths.data_dir' not found\n    full_key: a"),
     "config_invalid", ("from paths.data_dir, which nothing sets", "+paths.data_dir=VALUE")),
    (('omegaconf.errors.InterpolationResolutionError: KeyError raised while resolving interpolation: "Environment '
     "variable 'PROJECT_ROOT' not found\""), "config_invalid", ("the variable PROJECT_ROOT", "PROJECT_ROOT=VALUE")),
    (('  File "/tmp/pip-install-x/flash-attn/setup.py", line 22, in <module>\n    import torch\nModuleNotFoundError: '
      "No module named 'torch'"), "missing_module", ("build isolation", "--no-build-isolation")),
    ("RuntimeError: Internal: could not parse ModelProto from /models/m/tokenizer.model", "checkpoint_corrupt",
     ("(/models/m/tokenizer.model)", "Git LFS")),
    (("tarfile.ReadError: (\"unexpected end of data @ <_io.BufferedReader name='/data/shards/a-31.tar'>\")"),
     "checkpoint_corrupt", ("(/data/shards/a-31.tar)", "tar -tf")),
    ("EOFError: Compressed file ended before the end-of-stream marker was reached", "checkpoint_corrupt", ("gzip -t",)),
    ("ValueError: No samples found in dataset; perhaps you have fewer shards than workers.", "empty_dataset",
     ("fewer shards than workers", "resampled=True")),
    (("cv2.error: OpenCV(4.10.0) /io/opencv/modules/imgproc/src/color.cpp:196: error: (-215:Assertion failed) "
     "!_src.empty() in function 'cvtColor'"), "bad_data", ("cv2.imread", "img is None")),
    ("OSError: Unable to synchronously open file (truncated file: eof = 96, sblock->base_addr = 0, stored_eof = 2048)",
     "bad_data", ("HDF5 file is cut off", "h5ls")),
    ("BlockingIOError: [Errno 11] Unable to open file (unable to lock file, errno = 11, error message = 'Resource')",
     "file_lock_timeout", ("HDF5", "HDF5_USE_FILE_LOCKING")),
    (('Traceback (most recent call last):\n  File "/e/datasets/formatting/formatting.py", line 285, in __getitem__\n'
      "    value = self.data[key]\nKeyError: 'prompt'"), "user_exception", ("has no column 'prompt'", "rename_column")),
    (("megatron.core.dist_checkpointing.core.CheckpointingException: Global shape mismatch for loaded "
     "(torch.Size([50304, 4096])) and expected ((50432, 4096)) tensor for key embedding.word_embeddings.weight"),
     "checkpoint_mismatch", ("the vocabulary of embedding.word_embeddings.weight is 50304 in it and 50432",)),
    (('ValueError: Trying to set a tensor of shape torch.Size([32, 8]) in "weight" (which has shape torch.Size([31, 8]'
      ")), this looks incorrect."), "checkpoint_mismatch", ("is 32 in it and 31 in the model",)),
    (("RuntimeError: Data processing error: CAS service error : Reqwest Error: HTTP status server error (504 Gateway "
     "Timeout), domain: https://cas-server.xethub.hf.co/r"), "hub_network", ("has an error (504).",)),
    (('Traceback (most recent call last):\n  File "/env/lib/python3.11/site-packages/own/mamba.py", line 190, in f'
      "\n    x = causal_conv1d_fn(\nTypeError: 'NoneType' object is not callable"), "user_exception",
     ("causal_conv1d_fn is None", "optional package")),
    (("RuntimeError: Given groups=1, weight of size [64, 3, 7, 7], expected input[16, 1, 224, 224] to have 3 channels, "
     "but got 1 channels instead"), "user_exception", ("takes 3 channels", "has 1", '.convert("RGB")')),
    ("OSError: [Errno 30] Read-only file system: '/ckpt/last.pt'", "permission_denied",
     ("only be read (/ckpt/last.pt)", "without :ro")),
    ("OSError: Error no file named model_index.json found in directory /models/sd.", "missing_file",
     ("/models/sd has no model_index.json", "from_single_file")),
    ("AssertionError: One or both of the .idx and .bin files cannot be found at the path prefix /data/my_document",
     "missing_file", ("prepared data of Megatron at /data/my_document", "_text_document")),
    ("FileNotFoundError: Couldn't find any class folder in /data/train.", "missing_file", ("(/data/train)",)),
    ("FileNotFoundError: Found no valid file for the classes cat, dog. Supported extensions are: .jpg", "missing_file",
     ("(cat, dog)", "allow_empty=True")),
    (('Traceback (most recent call last):\n  File "/own.py", line 9, in main\n    raise ValueError(\nValueError: '
      "Unrecognized configuration class <class 'transformers.models.own.configuration_own.OwnVLConfig'> for "
      "this kind of AutoModel: AutoModelForCausalLM."), "config_invalid",
     ("AutoModelForCausalLM cannot load a model of the kind OwnVL", "AutoModelForImageTextToText")),
    (("AssertionError: All bounding boxes should have positive height and width. Found invalid box [1, 2, 1, 4] for "
     "target at index 0."), "bad_data", ("Found invalid box [1, 2, 1, 4]", "clip it")),
    ("ValueError: Expected x_max for bbox [0.4 0.2 1.1 0.7] to be in the range [0.0, 1.0], got 1.1.", "bad_data",
     ("A bounding box", "xyxy")),
    (('Traceback (most recent call last):\n  File "/own.py", line 9, in main\n    raise ValueError(\nValueError: '
      "`--caption_column` value 'text' needs to be one of: image, caption"), "config_invalid",
     ("refuses a setting: `--caption_column`", "in the arguments")),
    (('Traceback (most recent call last):\n  File "/own.py", line 9, in main\n    raise RuntimeError(\nRuntimeError: '
      "The folder out is not empty; --overwrite allows it"), "config_invalid", ("refuses", "--overwrite allows it")),
    ("RuntimeError: Mesh should not be bigger than default world size 4, but found 8 ranks!", "world_size_mismatch",
     ("multiply to 8, and 4 processes train", "multiply to 4")),
    ("RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False.",
     "no_gpu_visible", ("saved from a GPU", 'map_location="cpu"')),
    (("mlflow.exceptions.MlflowException: API request to http://mlflow.lab:5000/api failed with exception "
     "HTTPConnectionPool(host='mlflow.lab', port=5000): Max retries exceeded with url: /api"), "hub_network",
     ("MLflow", "mlflow.lab:5000", "MLFLOW_TRACKING_URI")),
    (('Traceback (most recent call last):\n  File "/env/lib/python3.11/site-packages/s3fs/core.py", line 9, in f\n'
      "    raise err\nPermissionError: Forbidden"), "permission_denied", ("object store", "AWS_PROFILE")),
    ("jinja2.exceptions.UndefinedError: 'dict object' has no attribute 'content'", "user_exception",
     ("chat template", "role and content")),
    ("omegaconf.errors.MissingMandatoryValue: Missing mandatory value: model.data", "config_invalid",
     ("leaves model.data open", "model.data=VALUE")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "failure", "words"), NAMED, ids=[f"{row[1]}-{n}" for n, row in enumerate(NAMED)])
def test_what_the_log_names_is_named(text, failure, words):
    found = said(text + "\n")
    assert found.failure == failure
    for word in words:
        assert word in found.cause + found.remedy


RAISED = 'Traceback (most recent call last):\n  File "own.py", line 3, in <module>\n    {}\n'


@pytest.mark.parametrize(
    ("text", "word"),
    [
        # What a caught error left in the log, then another one.
        ("stty: 'standard input': Inappropriate ioctl for device\n" + RAISED + "ZeroDivisionError: x\n", "stty"),
        (RAISED + "OSError: [Errno 25] Inappropriate ioctl for device\n", "how large"),
        (RAISED + "AttributeError: module 'numpy' has no attribute 'unicode'\n", "Write unicode"),
        (RAISED + 'yaml.constructor.ConstructorError: could not determine a constructor\n  in "h.yaml", '
         "line 2, column 1\n", "no valid YAML"),
        (RAISED + "OSError: We couldn't connect to 'https://huggingface.co' to load the files. "
         "See https://docs.example.com/x: timed out\n", "docs.example.com"),
        (RAISED + "urllib3.exceptions.MaxRetryError: HTTPSConnectionPool(host='10.0.0.7', port=443): Max "
         "retries exceeded (Caused by NewConnectionError('Connection refused'))\n", "10.0.0.7, from which"),
    ],
)  # fmt: skip
def test_what_looks_like_it_is_not_taken_for_it(text, word):
    found = said(text.format("run()"))
    assert found
    assert word not in found.cause + found.remedy


def test_a_name_from_a_log_is_no_package_to_install_and_no_shell_text():
    text = "ImportError: evil-thing>=9 is required for a normal functioning of this module, but found evil-thing==1.\n"
    assert "pip install 'PACKAGE>=VERSION'" in said(text).remedy
    text = "[c10d] The client socket has timed out after 6000ms while trying to connect to (h;reboot, 29500).\n"
    assert "reboot" not in said(text).remedy


def test_braces_of_a_text_stay_and_values_stand_apart():
    text = "RuntimeError: Expected to mark a variable ready only once.\n"
    assert 'gradient_checkpointing_kwargs={"use_reentrant": False}' in said(text).remedy
    text = "ConnectionError: The vLLM server can't be reached at http://h:8000 after 60.0 seconds.\n"
    assert "(http://h:8000) (60.0 seconds)" in said(text).cause
    assert said("{'loss': nan}\n{'loss': nan}\n", 0).cause == "The loss or the gradients became NaN or infinite."


def test_details_are_well_formed_and_fast():
    failures = {signature.failure for signature, _ in load_signatures()}
    written = re.compile(r"\\[a-zA-Z]|\(\?[^)]*?[:=!>]|\{\d*,?\d*\}|[\[\](){}|?*+^$\\]")
    for detail, expression in load_details():
        assert detail.failure in failures
        assert detail.cause or detail.remedy
        assert r"\n" in expression.pattern or required_words(expression.pattern), expression.pattern
        words = written.sub(" ", expression.pattern).split() or ["x"]
        for unit in (" ".join(words), "".join(words), words[0]):
            text = "\n".join([(unit * (1500 // len(unit) + 1))[:1500]] * 3)
            begin = time.process_time()
            expression.search(text)
            assert time.process_time() - begin < 0.1, (expression.pattern, unit)


LOGS = Path(__file__).parents[1] / "logs"
# Logs of real tools that were given something wrong, and what an answer must name.
REAL = {
    "config_invalid--a-setting-of-trl": (
        "the value of assistant_only_loss",
        "not conversational",
        "Change assistant_only",
    ),
    "host_oom--a-worker": ("DataLoader worker (process ", "usually the kernel", "if it shows a kill"),
    "user_exception--a-lambda-for-a-worker": ("<lambda>", "num_workers=0"),
    "user_exception--in-a-worker": ("worker 1: ValueError: row 7 has no label", "__getitem__"),
    "bad_data--other-columns": ("message: string", "the same columns"),
    "checkpoint_mismatch--resumed": ("is 48 in it and 32 in the model",),
    "batch_config--generations": ("batch 3 is not a multiple of num_generations 4",),
    "checkpoint_corrupt--a-header": ("Git LFS", "hf download"),
}


@pytest.mark.parametrize("log", REAL)
def test_what_a_real_tool_was_given_wrong_is_named(log):
    found = said((LOGS / f"{log}.log").read_text())
    for word in REAL[log]:
        assert word in found.cause + found.remedy


def test_a_plain_error_names_its_place():
    own = 'Traceback (most recent call last):\n  File "/train.py", line 3, in <module>\n    d[0]\n'
    assert said(own + "ZeroDivisionError: x\n").remedy.startswith("Look at line 3 of /train.py, in <module>: ")


CALLED = (
    'Traceback (most recent call last):\n  File "/home/ann/train.py", line 3, in main\n    train()\n'
    '  File "/env/lib/python3.12/site-packages/{file}", line 9, in f\n    {source}\n{error}\n'
)
# What a library refuses, and what it only passes on.
RAISED = [
    ("peft/tuners/lora/config.py", "raise ValueError(", "ValueError: `layers_pattern` cannot be used with a str.",
     "config_invalid", "PEFT refuses the value of layers_pattern: `layers_pattern` cannot", "Change layers_pattern"),
    ("torch/utils/data/dataloader.py", "raise ValueError(", "ValueError: persistent_workers needs num_workers > 0",
     "config_invalid", "torch refuses a setting: persistent_workers", "Change what the message names"),
    ("accelerate/utils/launch.py", "assert port", "AssertionError: no port for 3 machines",
     "user_exception", "accelerate raised: AssertionError: no port for 3 machines", "gives to accelerate; where"),
    # It cannot find something, which is no use that it does not support.
    ("peft/x.py", "raise RuntimeError(", "RuntimeError: cannot locate the layer x in the model",
     "user_exception", "PEFT raised: RuntimeError: cannot locate the layer x", "gives to PEFT; where that is right"),
    # It names what was looked up, and nothing to do.
    ("pandas/core/indexes/base.py", "raise KeyError(key) from err", "KeyError: 'text'",
     "user_exception", "pandas looks for 'text', and it is not there", "Look at line 3 of /home/ann/train.py"),
    ("datasets/arrow_dataset.py", "raise ValueError(", ("ValueError: Column to remove ['a'] not in the dataset. "
     "Current columns in the dataset: ['b']"), "user_exception", "no column ['a']; it has ['b']", "Name a column"),
    ("transformers/trainer.py", "raise ValueError(", ("ValueError: The model did not return a loss from the inputs, "
     "only the following keys: logits. For reference, the inputs it received are input_ids,mask."),
     "user_exception", "only logits: it got no labels (its inputs: input_ids,mask", "a column labels"),
    ("transformers/quantizers/base.py", "raise OSError(", "OSError:\nno weights in that folder",
     "user_exception", "transformers raised: OSError: no weights in that folder", "at line 3 of /home/ann/train.py"),
    ("torch/nn/modules/linear.py", "return F.linear(x)", "RuntimeError: an odd shape",
     "user_exception", "torch raised: RuntimeError: an odd shape", "Look at line 3 of /home/ann/train.py"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "source", "error", "failure", "cause", "remedy"), RAISED, ids=[r[0] for r in RAISED])
def test_what_a_library_refuses_is_told_in_its_words(file, source, error, failure, cause, remedy):  # noqa: PLR0913, PLR0917
    found = said(CALLED.format(file=file, source=source, error=error))
    assert found.failure == failure
    assert cause in found.cause
    assert remedy in found.remedy


def test_an_error_that_libraries_raise_anew_names_the_line_of_the_script():
    frame = '  File "/env/lib/python3.12/site-packages/{}", line 9, in f\n    raise {} from e\n'
    pool = "HTTPSConnectionPool(host='data.example.com', port=443): Max retries exceeded with url: /a.zip"
    log = (
        f"Traceback (most recent call last):\n{frame.format('urllib3/util/retry.py', 'MaxRetryError')}"
        f"urllib3.exceptions.MaxRetryError: {pool}\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        'Traceback (most recent call last):\n  File "/home/ann/train.py", line 3, in load\n    requests.get(URL)\n'
        f"{frame.format('requests/adapters.py', 'ConnectionError')}requests.exceptions.ConnectionError: {pool}\n"
    )
    found = said(log)
    assert found.cause == "The script could not reach data.example.com, or was refused there."
    assert "line 3 of /home/ann/train.py, in load" in found.remedy
    unrelated = 'Traceback (most recent call last):\n  File "/home/ann/other.py", line 9, in f\n    f()\nOSError: x\n'
    chain = log.partition("During handling")[0]
    assert "other.py" not in said(chain + unrelated).remedy
    assert said(log.replace("data.example.com", "api.wandb.ai")).failure == "wandb_network"
    assert "The model hub could not be reached" in said(log.replace("data.example.com", "cdn-lfs.huggingface.co")).cause


def test_a_long_message_ends_with_a_sentence_or_a_word():
    found = said(CALLED.format(file="peft/x.py", source="raise", error="OSError: " + "one two. " * 30 + "three " * 90))
    assert found.cause.endswith("two.")
    found = said(CALLED.format(file="peft/x.py", source="raise", error="OSError: " + "three " * 90))
    assert found.cause.endswith(" three…")


def test_a_traceback_that_is_drawn_as_a_box_names_the_place():
    box = (
        "╭── Traceback (most recent call last) ──╮\n│ /home/ann/train.py:12 in load          │\n╰────╯\nKeyError: 'a'\n"
    )
    found = said(box)
    assert found.remedy.startswith("Look at line 12 of /home/ann/train.py, in load, ")
    assert found.cause == "The script looks for 'a', and it is not there: KeyError."


def test_a_failure_is_headed_in_words():
    assert [failure_heading(name) for name in ("user_args", "cuda_oom")] == ["wrong arguments", "out of GPU memory"]
    assert {*HEADING_BY_FAILURE} <= {signature.failure for signature, _ in load_signatures()}, (
        "each is a class that there is"
    )


@pytest.mark.parametrize(
    ("source", "number", "words"),
    [
        ("torchcodec/_internally_replaced_utils.py", 0, "finds no FFmpeg that it can use"),
        ("torchcodec/_internally_replaced_utils.py", 1, "does not fit this torch or its CUDA"),
        ("torchcodec/_internally_replaced_utils.py", 2, "does not fit this torch or its CUDA"),
        ("torchcodec/_core/ops.py", 0, "finds no FFmpeg that it can use"),
        ("torchcodec/_core/ops.py", 1, "does not fit this torch or its CUDA"),
    ],
)
def test_of_what_torchcodec_tried_the_installed_ffmpeg_counts(source, number, words):
    messages = msgspec.toml.decode((Path(__file__).parents[1] / "messages.toml").read_bytes())
    text = messages["extension_abi_mismatch"][source][number]
    found = said(text)
    assert words in found.cause, found


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (
            '"/env/lib/python3.11/site-packages/datasets/arrow_dataset.py", line 3457, in _map_single',
            "prepared the data",
        ),
        ('"/env/lib/python3.11/site-packages/datasets/load.py", line 12, in load_dataset', "read the data"),
        ('"/env/lib/python3.11/site-packages/torch/utils/data/_utils/fetch.py", line 54, in fetch', "made a batch"),
        ('"/work/own.py", line 9, in compute_metrics', "computed its metrics"),
        ('"/work/own.py", line 9, in load_checkpoint', "loaded a checkpoint"),
        (
            '"/env/lib/python3.11/site-packages/transformers/trainer.py", line 9, in _save_checkpoint',
            "saved a checkpoint",
        ),
        ('"/env/lib/python3.11/site-packages/wandb/sdk/wandb_init.py", line 9, in init', "logged its numbers"),
    ],
)
def test_an_error_of_no_known_kind_tells_what_the_training_did(frame, words):
    start = 'Traceback (most recent call last):\n  File "/work/own.py", line 3, in <module>\n    start()\n'
    end = "OddFault: it is odd\n"
    found = said(f"{start}  File {frame}\n    call()\n{end}")
    assert (words in found.cause, "OddFault: it is odd" in found.cause) == (True, True)
    # What a model computes within it is a matter of its own.
    inner = '  File "/env/lib/python3.11/site-packages/torch/nn/modules/module.py", line 9, in _call_impl\n    call()\n'
    assert words not in said(f"{start}  File {frame}\n    call()\n{inner}{end}").cause


TORCH = "/env/lib/python3.11/site-packages/torch/distributed/{}"
FACTORY, VERL = "/root/LLaMA-Factory/src/llamafactory/{}", "/workspace/verl/verl/{}"


@pytest.mark.parametrize(
    ("frames", "error", "words"),
    [
        # Sharded tensors, whatever torch says of them.
        ([(TORCH.format("device_mesh.py"), "raise KeyError(")], "KeyError: 'Invalid dim names (x,) specified'",
         ("computed with sharded tensors", "line 1 of /w/own.py")),
        ([(TORCH.format("tensor/_ops.py"), "raise NotImplementedError(")],
         "NotImplementedError: Operator aten.cdist does not have a sharding strategy registered.",
         ("(DTensor) do not fit", ".full_tensor()", "line 1 of /w/own.py")),
        # What is raised in C++ shows no statement.
        ([("/env/lib/python3.11/site-packages/torch/autograd/graph.py", "return engine.run_backward(")],
         "RuntimeError: derivative for aten::_scaled_mm is not implemented", ("Leave out or replace", "line 1 of")),
        # A library that is cloned beside the script is none of the user's own code.
        ([(FACTORY.format("hparams/parser.py"), 'raise ValueError("Please specify dataset")')],
         "ValueError: Please specify dataset", ("Do what LLaMA-Factory says; ", "line 1 of /w/own.py")),
        ([(VERL.format("workers/rollout.py"), "self.engine.executor")],
         "AttributeError: 'Engine' object has no attribute 'executor'", ("verl uses executor of a Engine",)),
        ([("/env/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", "init_fn(worker_id)")],
         "TypeError: seed() missing 1 required positional argument: 'rank'", ("where torch calls the function",)),
        # Python before 3.10 names no class.
        ([(FACTORY.format("w.py"), "trainer = OwnTrainer("), (FACTORY.format("own.py"), "super().__init__(**kw)")],
         "TypeError: __init__() got an unexpected keyword argument 'tokenizer'",
         ("OwnTrainer takes no argument tokenizer, which LLaMA-Factory gives it", "pip install -U transformers`;")),
        ([("/w/more.py", "own = wrap(SFTTrainer(args=SFTConfig(dataset_text_field='a')))")],
         "TypeError: __init__() got an unexpected keyword argument 'args'", ("SFTTrainer takes no argument args",)),
    ],
)  # fmt: skip
def test_what_a_traceback_shows_stands_for_what_the_error_does_not_say(frames, error, words):
    lines = (
        f'  File "{file}", line {number}, in f\n    {code}\n'
        for number, (file, code) in enumerate([("/w/own.py", "start()"), *frames], start=1)
    )
    found = said(f"Traceback (most recent call last):\n{''.join(lines)}{error}\n")
    for word in words:
        assert word in found.cause + " " + found.remedy


@pytest.mark.parametrize(
    ("file", "library"),
    [
        ("/env/lib/python3.11/site-packages/trl/trainer/x.py", "trl"),
        ("/w/Megatron-LM/megatron/training/x.py", "megatron"),
        ("/home/me/src/transformers/src/transformers/x.py", "transformers"),
        ("/home/me/transformers/examples/run_clm.py", ""),
        ("/home/me/net/net/x.py", ""),
        ("/home/me/project/datasets/x.py", ""),
    ],
)
def test_a_file_is_of_the_library_in_whose_clone_it_lies(file, library):
    assert library_of_file(file) == library


@pytest.mark.parametrize(
    ("error", "failure", "words"),
    [
        ("RuntimeError: view size is not compatible with input tensor's size and stride", "user_exception", ".reshape"),
        ("RuntimeError: grad can be implicitly created only for scalar outputs", "user_exception", "loss.mean()"),
        ("RuntimeError: Can't call numpy() on Tensor that requires grad.", "user_exception", ".detach()"),
        ("RuntimeError: expected scalar type Long but found Float", "user_exception", ".long()"),
        ("RuntimeError: Found dtype Double but expected Float", "user_exception", ".float()"),
        ("ValueError: Target size (torch.Size([16])) must be the same as input size (torch.Size([16, 1]))",
         "user_exception", "unsqueeze"),
        ("ValueError: Expected more than 1 value per channel when training, got input size torch.Size([1, 512])",
         "user_exception", "drop_last=True"),
        ("IndexError: too many indices for tensor of dimension 1", "user_exception", "fewer dimensions"),
        ("ValueError: too many values to unpack (expected 2)", "user_exception", "another number of values"),
        ("TypeError: Object of type float32 is not JSON serializable", "user_exception", ".item()"),
        ("TypeError: list indices must be integers or slices, not str", "user_exception", "of another kind"),
        ("TypeError: linear(): argument 'input' (position 1) must be Tensor, not tuple", "user_exception", "logits"),
        ("TypeError: forward() missing 1 required positional argument: 'x'", "user_exception", "without 'x'"),
        ("TypeError: cannot pickle 'generator' object", "user_exception", "num_workers=0"),
        ("TypeError: object of type 'NoneType' has no len()", "user_exception", "got None"),
        ("AttributeError: 'NoneType' object has no attribute 'to'", "user_exception", "got None"),
        ("RuntimeError: Expected a 'cuda' device type for generator but found 'cpu'", "multi_device_tensors",
         "cuda and cpu"),
        ("FileExistsError: [Errno 17] File exists: 'out/ck'", "user_exception", "out/ck is there already"),
        ("IsADirectoryError: [Errno 21] Is a directory: 'out'", "missing_file", "out is a folder"),
        ("NotImplementedError: Could not run 'torchvision::nms' with arguments from the 'CUDA' backend.",
         "torch_cpu_build", "torchvision is a build for the CPU"),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasSgemm(`", "cuda_error",
         "INVALID_VALUE"),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_BAD_PARAM", "cuda_error", "BAD_PARAM"),
        ("RuntimeError: Numpy is not available", "import_mismatch", "numpy<2"),
        ("AttributeError: module 'torch.distributed' has no attribute 'init_process_group'", "import_mismatch",
         "built without torch.distributed"),
        ("AttributeError: module 'torch.distributed' has no attribute 'fsdp'", "import_mismatch", "another version"),
        ("lightning.fabric.utilities.exceptions.MisconfigurationException: `configure_optimizers` must be implemented",
         "config_invalid", "Lightning refuses"),
        ("ValueError: Labels' sequence length 462 cannot exceed the maximum allowed length of 448 tokens.",
         "user_exception", "max_length=448"),
        ("ValueError: Tried to step 1002 times. The specified number of total steps is 1000", "user_exception",
         "made for 1000 steps"),
        ("RuntimeError: unscale_() has already been called on this optimizer since the last update().",
         "user_exception", "sync_gradients"),
        ("RuntimeError: output with shape [1, 28, 28] doesn't match the broadcast shape [3, 28, 28]",
         "user_exception", "as many channels"),
        ("RuntimeError: derivative for aten::own_backward is not implemented", "user_exception", "SDPBackend.MATH"),
        ("RuntimeError: FlashAttention forward only supports head dimension at most 256", "user_exception",
         "only supports head dimension at most 256"),
        ("TypeError: 'DataLoader' object is not subscriptable", "user_exception", "of another kind"),
        ("botocore.exceptions.NoCredentialsError: Unable to locate credentials", "user_exception", "AWS_ACCESS_KEY_ID"),
        ("yaml.scanner.ScannerError: mapping values are not allowed here", "user_exception", "file of settings"),
    ],
)  # fmt: skip
def test_a_plain_error_says_what_it_means(error, failure, words):
    text = 'Traceback (most recent call last):\n  File "/work/own.py", line 3, in main\n    start()\n' + error + "\n"
    found = said(text)
    assert (found.failure, words in found.cause + found.remedy) == (failure, True)
    assert "start()" not in found.cause.replace(" (start())", "")


def test_a_traceback_in_a_box_tells_what_failed_and_where():
    box = (
        "╭─── Traceback (most recent call last) ───╮\n│ /work/own.py:88 in main                  │\n"
        "│ ❱  88 │   load_dataset(name)            │\n"
        "│ /env/lib/python3.11/site-packages/datasets/load.py:1797 in load_dataset  │\n"
        "│ ❱ 1797 │   build(                       │\n╰──────────────────────────────────────────╯\n"
    )
    found = said(f"{box}OddError: it is odd\n")
    assert "datasets raised (while the training read the data): OddError" in found.cause
    assert "line 88 of /work/own.py" in found.remedy
