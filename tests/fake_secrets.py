"""Secrets of many kinds in the lines where they occur, made at test time so that no scanner finds one in this file.

A template has the secret between « and »; {an:52} is 52 random letters and digits, others are in `_CHARACTERS_BY_KIND`.
"""

import random
import re
import string

_CHARACTERS_BY_KIND = {
    "an": string.ascii_letters + string.digits,
    "low": string.ascii_lowercase + string.digits,
    "up": string.ascii_uppercase + string.digits,
    "hex": "0123456789abcdef",
    "dig": string.digits,
    "url": string.ascii_letters + string.digits + "_-",
    "b64": string.ascii_letters + string.digits + "+/",
    "b32": string.ascii_uppercase + "234567",
    "age": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
    "word": string.ascii_lowercase,
}

# Kind, and a line of a log, a profile, a file or a command. The first are those of services for messages.
SECRET_TEMPLATES = {
    "slack webhook": "posting to «https://hooks.slack.com/services/T{up:10}/B{up:10}/{an:24}»",
    "slack workflow": 'url: "«https://hooks.slack.com/triggers/T{up:10}/{dig:13}/{hex:32}»"',
    "discord webhook": "POST «https://discord.com/api/webhooks/{dig:18}/{url:68}» 204",
    "old discord webhook": "hook=«https://discordapp.com/api/webhooks/{dig:18}/{url:68}»",
    "teams webhook": (
        "«https://contoso.webhook.office.com/webhookb2/{uuid}@{uuid}/IncomingWebhook/{hex:32}/{uuid}» failed: 400"
    ),
    "teams workflow": (
        "POST https://prod-12.westeurope.logic.azure.com:443/workflows/{hex:32}/triggers/manual/paths/invoke"
        "?api-version=2016-06-01&sp=%2Ftriggers%2Fmanual%2Frun&sv=1.0&sig=«{url:43}»"
    ),
    "telegram in a URL": "GET https://api.telegram.org/bot«{dig:10}:AA{url:33}»/sendMessage?chat_id=42",
    "telegram bot": "bot started with «{dig:10}:AA{url:33}»",
    "google chat": "«https://chat.googleapis.com/v1/spaces/{an:11}/messages?key=AIza{url:35}&token={url:43}»",
    "mattermost hook": "webhook = https://chat.example.org/hooks/«{low:26}»",
    "feishu hook": "https://open.feishu.cn/open-apis/bot/v2/hook/«{uuid}» sent",
    "home assistant": "POST https://ha.example.org/api/webhook/«run-ended-{low:6}3k4j5h{an:4}»",
    "wecom hook": "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=«{uuid}»",
    "dingtalk hook": "https://oapi.dingtalk.com/robot/send?access_token=«{hex:64}»",
    "ntfy token": 'curl -H "Authorization: Bearer «tk_{low:29}»" -d done ntfy.sh/mine',
    "pushover": "pushover: user=«u{low:29}» token=«a{low:29}»",
    "healthchecks": "ping https://hc-ping.com/«{uuid}»/start",
    # Clouds and services, by the form of the value.
    "aws key id": "using credentials AKIA«{b32:16}»",
    "bare aws secret": "AKIA{b32:16} «{b64:40}»",
    "aws secret after its id": "boto3.client('s3', 'AKIA{b32:16}', '«{b64:40}»')",
    "aws csv": "AKIA{b32:16},«{b64:40}»",
    "aws session": "aws_session_token = «IQoJb3JpZ2luX2Vj{b64:200}==»",
    "groq": "--groq «gsk_{an:52}»",
    "xai": "client = Client('«xai-{an:80}»')",
    "digitalocean": "doctl auth init -t «dop_v1_{hex:64}»",
    "vault": "vault login «hvs.{url:95}»",
    "vault batch": "token: hvb.«{url:140}»",
    "tailscale": "tailscale up --authkey «tskey-auth-k{an:11}CNTRL-{an:32}»",
    "age": "«AGE-SECRET-KEY-1{age:58}»",
    "twilio": "Client('AC{hex:32}', '«{hex:32}»')",
    "twilio key": "sid «SK{hex:32}»",
    "totp uri": "otpauth://totp/GitHub:me?secret=«{b32:32}»&issuer=GitHub",
    "totp": "2fa seed: «{b32:32}»",
    "huggingface": "huggingface-cli login --token «hf_{an:34}»",
    "openai": "openai.AuthenticationError: Incorrect API key provided: «sk-{an:48}».",
    "openai project": "OPENAI: «sk-proj-{url:74}T3BlbkFJ{url:74}»",
    "anthropic": "'x-api-key': '«sk-ant-api03-{url:93}AA»'",
    "openrouter": "OpenAI(base_url=u, api_key='«sk-or-v1-{hex:64}»')",
    "mistral": "MISTRAL_API_KEY=«{an:32}»",
    "google": "genai.configure('«AIza{url:35}»')",
    "google oauth": "refresh «1//0{url:60}», secret «GOCSPX-{url:28}»",
    "replicate": "replicate.Client('«r8_{an:37}»')",
    "perplexity": "«pplx-{an:48}»",
    "fireworks": "«fw_{an:24}» was rejected",
    "cohere": "co = cohere.Client(api_key=«{an:40}»)",
    "nvidia": "docker login nvcr.io -u '$oauthtoken' -p «nvapi-{url:64}»",
    "ngc": "NGC_CLI_API_KEY «{b64:84}==»",
    "wandb": "wandb.login(key='«{hex:40}»')",
    "wandb v1": "wandb_v1_«{an:60}»",
    "comet": "comet_ml.init(api_key=«{an:25}»)",
    "neptune": "NEPTUNE_API_TOKEN=«eyJhcGlfYWRkcmVzcyI6{an:120}==»",
    "kaggle": '{{"username":"me","key":"«{hex:32}»"}}',
    "kaggle token": "KAGGLE_API_TOKEN=«KGAT_{hex:32}»",
    "github": "git clone https://«ghp_{an:36}»@github.com/a/b",
    "github fine": "remote: «github_pat_{an:22}_{an:59}»",
    "gitlab": "pip install --index-url https://__token__:«glpat-{url:20}»@gitlab.com/simple x",
    "npm": "//registry.npmjs.org/:_authToken=«npm_{an:36}»",
    "pypi": "twine upload -p «pypi-AgEIcHlwaS5vcmc{url:150}»",
    "docker": "echo «dckr_pat_{url:27}» | docker login -u me --password-stdin",
    "slack bot": "WebClient('«xoxb-{dig:12}-{dig:13}-{an:24}»')",
    "slack app": "«xapp-1-A{up:10}-{dig:13}-{hex:64}»",
    "discord bot": "client.run('«MT{an:24}.{url:6}.{url:38}»')",
    "sendgrid": "«SG.{url:22}.{url:43}»",
    "mailgun": "key-«{hex:32}» for mg.example.org",
    "stripe": "stripe.key: «sk_live_{an:24}»",
    "databricks": "databricks configure «dapi{hex:32}»",
    "azure storage": (
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=«{b64:86}==»;EndpointSuffix=core.windows.net"
    ),
    "azure sas": "https://a.blob.core.windows.net/c/f?sv=2024-11-04&st=2026&sr=c&sig=«{url:43}%3D»",
    "alibaba": "OSS: «LTAI{an:20}»",
    "tencent": "COS with «AKID{an:32}»",
    "cloudflare": "CLOUDFLARE_API_TOKEN=«{url:40}»",
    "linode": "LINODE_TOKEN: «{hex:64}»",
    "linear": "«lin_api_{an:40}»",
    "notion": "notion «ntn_{an:46}»",
    "grafana": "«glsa_{an:32}_{hex:8}»",
    "sentry": "dsn https://«{hex:32}»@o123456.ingest.sentry.io/7654321",
    "supabase": "«sbp_{hex:40}»",
    "jwt": "cookie «eyJhbGciOiJIUzI1NiJ9.eyJ{url:60}.{url:43}»",
    # Command lines.
    "mysql": "+ mysql -h db -u root -p«{an:14}» train",
    "mysqldump": "mysqldump --user=me -p'«{an:14}» x' train",
    "curl -u": "+ curl -sS -u me:«{an:14}» https://files.example.org/x",
    "curl --user": "curl --user 'me:«{an:14}»' -O https://files.example.org/x",
    "curl -u of a token": "curl -u «{an:30}»: https://api.example.org",
    "wget": "wget --http-password=«{an:14}» https://files.example.org/x",
    "sshpass": "sshpass -p «{an:14}» ssh me@gpu",
    "sshpass joined": "sshpass -p'«{an:14}»' rsync a b",
    "redis": "redis-cli -h cache -a «{an:20}» ping",
    "psql": "PGPASSWORD=«{an:14}» psql -h db",
    "psql URL": "postgresql://me:«{an:14}»@db:5432/train",
    "mongo": "mongodb+srv://me:«{an:14}»@cluster0.example.net/x",
    "docker login": "docker login -u me -p «{an:16}» registry.example.org",
    "openssl": "openssl enc -d -aes-256-cbc -pass pass:«{an:16}» -in x",
    "sudo": "echo «{an:14}» | sudo -S mount /data",
    "smb": "mount -t cifs //nas/x /x -o username=me,password=«{an:14}»",
    "lftp": "lftp -u me,«{an:14}» ftp.example.org",
    "7z": "7z x data.7z -p«{an:14}» -o/data",
    "unzip": "unzip -P «{an:14}» data.zip",
    "gpg": "gpg --batch --passphrase «{an:14}» -d x.gpg",
    "sas of azcopy": "azcopy cp a 'https://a.blob.core.windows.net/c?sp=rwd&sig=«{url:43}%3D»'",
    # Files.
    ".netrc": "machine api.wandb.ai login user password «{hex:40}»",
    ".netrc of three lines": "machine files.example.org\n  login me\n  password «{an:16}»",
    ".pgpass": "db.example.org:5432:train:me:«{an:16}»",
    "git credentials": "https://me:«{an:20}»@git.example.org",
    "docker config": '{{"auths": {{"nvcr.io": {{"auth": "«{b64:60}=="»}}}}}}'.replace('"»', '»"'),
    "YAML": "tracker:\n  api_key: «{an:32}»\n  project: x",
    "JSON": '{{"steps": 5, "client_secret": "«{an:32}»"}}',
    "TOML": 'db_password = "«{an:20}»"',
    "INI": "[s3]\nsecret_key = «{b64:40}»",
    ".env": "export WANDB_KEY='«{hex:40}»'",
    "service account": (
        '"private_key": "«-----BEGIN PRIVATE KEY-----\\\\n{b64:64}\\\\n{b64:64}\\\\n-----END PRIVATE KEY-----»"'
    ),
    "PEM": "«-----BEGIN RSA PRIVATE KEY-----\n{b64:64}\n{b64:64}\n-----END RSA PRIVATE KEY-----»",
    "OpenSSH": "«-----BEGIN OPENSSH PRIVATE KEY-----\n{b64:70}\n{b64:70}\n-----END OPENSSH PRIVATE KEY-----»",
    "PuTTY": "Private-Lines: 2\n«{b64:64}\n{b64:64}»\nPrivate-MAC: {hex:64}",
    "WireGuard": "PrivateKey = «{b64:43}=»",
    # Logs.
    "bearer": "headers={{'Authorization': 'Bearer «{url:40}»'}}",
    "basic": "> Authorization: Basic «{b64:32}»",
    "api key header": "X-Api-Key: «{an:32}»",
    "private token header": "curl -H 'PRIVATE-TOKEN: «{an:20}»' https://git.example.org",
    "cookie": "Set-Cookie: session=«{url:40}»; HttpOnly",
    "traceback": "  File \"/x.py\", line 3, in <module>\n    login(password='«{an:16}»')",
    "Namespace": "Namespace(lr=1e-3, hub_token='«{an:20}»', steps=5)",
    "argv": "['train.py', '--api-key', '«{an:20}»', '--steps', '5']",
    "Hydra": "python train.py db.password=«{an:16}» lr=0.1",
    "environ": "environ({{'PATH': '/bin', 'AWS_SECRET_ACCESS_KEY': '«{b64:40}»'}})",
    "signed S3": "https://b.s3.amazonaws.com/k?X-Amz-Credential=«AKIA{b32:16}»%2F2026&X-Amz-Signature=«{hex:64}»",
    "signed GCS": "https://storage.googleapis.com/b/k?GoogleAccessId=a&Expires=1&Signature=«{an:86}%3D%3D»",
    "signed CDN": "https://cdn-lfs.hf.co/x?Expires=1&Policy=«{an:80}»&Signature=«{an:80}~»&Key-Pair-Id=K{up:13}",
}  # fmt: skip

# What looks random and is no secret, in the lines of healthy trainings.
HARMLESS_TEMPLATES = (
    "commit {hex:40}\nHEAD is now at {hex:7} Fix the loss",
    "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-{uuid})",
    "CUDA_VISIBLE_DEVICES=GPU-{uuid},GPU-{uuid}, MIG-{uuid}",
    "sha256:{hex:64}  model-00001-of-00002.safetensors",
    "{hex:64}  model.safetensors\n{hex:32}  data.jsonl",
    "ncclCommInitRank comm 0x{hex:12} rank 0 nranks 2 cudaDev 0 busId 1000 commId 0x{hex:16} - Init START",
    "/root/.cache/huggingface/hub/models--a--b/snapshots/{hex:40}/config.json",
    "/root/.cache/huggingface/hub/models--a--b/blobs/{hex:64}",
    "wandb: Syncing run misty-firefly-42\nwandb: 🚀 View run at https://wandb.ai/me/proj/runs/{low:8}",
    "wandb: Find logs at: ./wandb/run-20261124_161234-{low:8}/logs",
    "data:image/png;base64,iVBORw0KGgo{b64:400}",
    "{{'loss': 2.3456, 'grad_norm': 1.2345, 'learning_rate': 4.9e-05, 'epoch': 0.12, 'num_tokens': 123456.0}}",
    " 10%|█         | 100/1000 [00:10<01:30,  9.99it/s, loss=2.345, tokens/s=51234]",
    "tokens per second: 51234.5, tokens: 1234567890, num_input_tokens_seen: 98765",
    "pad_token_id: 151643, eos_token: <|im_end|>, bos_token='<s>', unk_token=None, special_tokens_map.json",
    "Using auto half precision backend; key_padding_mask is None; attention key heads: 8",
    "[rank0]:[W1124 16:12:00.123456789 ProcessGroupNCCL.cpp:4571] [PG ID 0 PG GUID 0 Rank 0] using GPU 0",
    'checkpoint saved to output/checkpoint-500 (etag "{hex:32}")',
    "torchrun --nnodes 2 --rdzv-id {hex:32} --rdzv-backend c10d --rdzv-endpoint 10.0.0.1:29500 train.py -p 4",
    "mlflow run {hex:32}, experiment 1",
    "job {dig:8} on node-17: srun -p gpu -u me -t 4:00:00 --ntasks=8",
    "Key 'model.layers.0.self_attn.k_proj.weight' not found in state dict; unexpected key lm_head.weight",
    "docker run --rm -p 6006:6006 -u 1000:1000 -e NCCL_DEBUG=INFO nvcr.io/nvidia/pytorch@sha256:{hex:64}",
    "mkdir -p /data/runs && cp -pr a b && ssh -p 2222 me@gpu-box && python -u train.py",
    "+ google-auth=2.40.3, pytest-auth: 1.2.3",
    "pip install torch --index-url https://download.pytorch.org/whl/cu126 --hash=sha256:{hex:64}",
    "safetensors hash {hex:64}; dataset fingerprint: {hex:16}; seed 1234567890",
    "model-{hex:32}.pt events.out.tfevents.1764000000.host.{dig:6}.0 train-{uuid}.parquet",
    'File "/usr/lib/python3.12/site-packages/transformers/tokenization_utils_base.py", line 2700, in pad',
    "GET https://huggingface.co/api/models/Qwen/Qwen3-0.6B/revision/{hex:40} 200",
    "see https://pytorch.org/docs/stable/notes/cuda.html#environment-variables?highlight=key",
    "password authentication is disabled; the password is read from the terminal",
    "login successful; token is valid (permission: read); your token has been saved",
    "{uuid} {uuid} request id req_0123 took 3.2 s",
    "vocab: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA, ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",
    "x-amz-request-id: {up:16}, x-amz-id-2: {b64:76}",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{b64:43} me@laptop",
    "SHA256:{b64:43} fingerprint of host gpu-box (ED25519)",
    "LlamaForCausalLM(embed_tokens): Embedding(32000, 4096); RMSNorm((4096,), eps=1e-05)",
    "tokenizing: 100%|██████████| 51760/51760 [00:12<00:00, 4200.12 examples/s]",
    "MASTER_ADDR=10.0.0.1 MASTER_PORT=29500 WORLD_SIZE=8 RANK=0 OMP_NUM_THREADS=12 PYTHONPATH=/a:/b",
    "git clone git@github.com:a/b.git; http://host:8080/x@y; user@host:/path; https://me@example.org/x",
    "seed 42, model QWENMOEPRETRAININGAB, seed: 42 run QWENMOEPRETRAININGA2",
    "role=bearer assistant, role: bearer of-the-ring-and-of-all-others, --role bearer tokens",
    "cookie: chocolate chip recipe with 200 g of flour and 2 eggs",
    "trainer.py:1234:train:loop:0.5\nnode01:29500:rank0:ready:step100\nkernel.cu:5432:launch:main:failed",
    "/data/hooks/forward_hook_1234567890_layer_12.pt, see https://example.org/hooks/forward_hook_1234567890_layer_12",
    "--mode upload -p 8080, --stage zip -P 8, docker login registry.example.org -p 8080, --db mysql -pretrained",
    "--tag otp --vocab ABCDEFGHIJKLMNOPQRSTUVWXYZ234567, mfa: MONTREALFORCEDALIGNER",
    "wandb: git commit {hex:40}, logged in; login node at revision {hex:40}",
    "default password is none; machine learning password reset",
    "authorization: disabled, authorization: token required, authorization: bearer tokens are passed on",
    "totp: 6 digits, otp = OPENTRAININGPROTOCOL, 2fa off, seed=1234567890123456789",
    '{{"role": "user", "content": "What does a bearer of tokens and cookies do?"}}',
    "optimizer.seed: 1234, data_seed: 42, seeds: [1234, 1235], PYTHONHASHSEED=0, port: 29500, host: 0.0.0.0:8080",
    "pad_token: <pad>, eos_token='</s>'",
    "--pad_token=<pad> --max_tokens 512 --num_key_value_heads=8",
    "the token count is 512, the key idea",
    "secrets=(HF_TOKEN) # taken from the environment",
    'secrets = ["HF_TOKEN"]',
    "https://example.org:8080/x@y and user@host:/path",
    "token: None, use_auth_token=True, key=value",
    "def login(user: str, token: str, password: str | None = None) -> None:",
    "a password is required, the token is: <unk>, the key is: missing, the passphrase is: ***",
    "sk-learn, risk-management-of-all, hf_home, hf_transfer, GPU-ac50e9bd-5330-6ce2-2d4b-8f95df663b60",
    "past_key_values, image_token=IMG",
    "forward_pass=slow, n_pass: 3, file_pat=*.json, two-pass: yes it is",
    "https://host/x?page=2&image_token=IMG&key=7 and https://host/x?sort_key=name",
    "docker://nvcr.io-nvidia-nemo-25.04-with-more@sha256:0123",
    "\x1b[32mstep 5\x1b[0m | loss 5.5, \x1b]0;title\x07 tokens/s \x1b[1m512\x1b[0m",
    "input_signature=(a), signature: def f(x), monkeyPatch=on, sortKey=length",
    "/opt/hooks/pre_commit_2026_11_24_checks.sh: 3 hooks/s, git_sha: {hex:40}, model_name: QWEN2MOE7BINSTRUCT",
)  # fmt: skip

_FIELD_PATTERN = re.compile(r"\{(\w+)(?::(\d+))?\}")


def _filled_template(template, random_):
    """Return a template with its random parts; doubled braces are braces."""

    def part(match):
        if match[1] == "uuid":
            digits = "".join(random_.choices(_CHARACTERS_BY_KIND["hex"], k=32))
            return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
        return "".join(random_.choices(_CHARACTERS_BY_KIND[match[1]], k=int(match[2])))

    return _FIELD_PATTERN.sub(part, template).replace("{{", "{").replace("}}", "}").replace("\\\\n", "\\n")


def texts_with_secrets(seed=1):
    """Return by kind a text that holds secrets, and those."""
    random_ = random.Random(seed)
    texts = {kind: _filled_template(template, random_) for kind, template in SECRET_TEMPLATES.items()}
    marked = {kind: (text, re.findall(r"«([^»]*)»", text)) for kind, text in texts.items()}
    return {kind: (re.sub("[«»]", "", text), secrets) for kind, (text, secrets) in marked.items()}


def harmless_lines(seed=1):
    """Return lines of healthy trainings."""
    random_ = random.Random(seed)
    return [_filled_template(template, random_) for template in HARMLESS_TEMPLATES]
