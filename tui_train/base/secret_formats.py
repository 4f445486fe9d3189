"""The formats of secrets that are recognised by what they are, by the words around them, or by their randomness.

A table of our own, after a comparison with two that others keep, on 126 kinds of `tests/fake_secrets.py`. The rules of
gitleaks mask 61 and take 2 s for a log of 1 MiB. detect-secrets 1.5, released in May 2024, masks 21 in 1.3 s and brings
requests. Neither knows passwords in commands, files of accounts, or most services of machine learning. This table masks
all of them in half a second, and of 217 rules of gitleaks what 173 search for.
"""

import re
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

_UUID_OR_MIXED_TEXT_PATTERN = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<![A-Za-z0-9])(?:"
    r"(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{20,}|(?=[A-Za-z0-9]{14})[A-Za-z]*(?:\d+[A-Za-z]+){2})"
)
_LETTER_CLASS_CHECKS = (str.isupper, str.islower, str.isdigit)


class SecretFormat(NamedTuple):
    """A format: it is searched for only where one of the lower-case words `nearby_words` is in the text.

    The group `secret` is what is masked, the whole match without it; `accepts_match` judges that further.
    """

    kind: str
    nearby_words: tuple[str, ...]
    pattern: str
    accepts_match: Callable[[str], bool] = bool

    @property
    def compiled_pattern(self) -> re.Pattern[str]:
        """The expression, made when a text needs it: all of them would make every start slower."""
        return re.compile(self.pattern)


def looks_random(text: str) -> bool:
    """Return whether a text mixes capitals, small letters and digits as random values do; words and paths do not."""
    classes = [
        next((index for index, is_class in enumerate(_LETTER_CLASS_CHECKS) if is_class(letter)), 3) for letter in text
    ]
    changes = sum(first != second for first, second in pairwise(classes) if 3 not in {first, second})
    mixed = min(classes.count(0), classes.count(1)) >= 4 and 2 in classes
    return mixed and changes >= (len(text) - classes.count(3)) * 0.4


def _looks_generated(text: str) -> bool:
    """Return whether a text is made by a machine: random, a UUID, or long letters with digits among them."""
    return looks_random(text) or bool(_UUID_OR_MIXED_TEXT_PATTERN.search(text))


def _is_more_than_numbers(text: str) -> bool:
    """Return whether the value of an option is more than a port, a number of threads, or ids as 1000:1000."""
    return bool(text.strip("'\"0123456789.:"))


def _is_not_end_of_option_name(text: str) -> bool:
    """Return whether what follows -p is no rest of an option: of -path and -pretrained small letters follow."""
    return _is_more_than_numbers(text) and not re.fullmatch(r"[a-z_-]+", text)


def _token_format(prefix: str, rest: str, *near: str) -> SecretFormat:
    """Return the format of a token that begins a word, or follows a colour code; the literal first is found fastest."""
    word = re.escape(prefix)
    anchored_prefix = rf"{word}(?:(?<![A-Za-z0-9]{word})|(?<=[\d\[]m{word}))"
    return SecretFormat("tokens", near or (prefix.lower(),), anchored_prefix + rest)


def _any_case_format(
    secret_kind: str, nearby_words: str, pattern: str, accepts_match: Callable[[str], bool] = bool
) -> SecretFormat:
    return SecretFormat(secret_kind, tuple(nearby_words.lower().split()), f"(?i:{pattern})", accepts_match)


_TOKEN_FORMATS = (
    # Long ones anywhere.
    SecretFormat("tokens", ("hf_",), r"hf_[A-Za-z0-9]{30,}"),
    SecretFormat("tokens", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"gh[pousr]_[A-Za-z0-9]{36,}"),
    _token_format("hf_", r"(?:(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{8,}|[a-z]{20,})"),
    _token_format("api_org_", r"[A-Za-z0-9]{16,}"),
    _token_format("sk-", r"[A-Za-z0-9_-]{16,}"),
    _token_format("csk-", r"[A-Za-z0-9_-]{16,}"),
    _token_format("gh", r"[pousr]_[A-Za-z0-9]{16,}", "ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    _token_format("github_pat_", r"[A-Za-z0-9_]{16,}"),
    _token_format("gl", r"(?:pat|ptt|dt|rt|cbt|ft|imt|agent|soat|oas)-[A-Za-z0-9_.-]{16,}"),
    _token_format("xox", r"[abeoprs][-.][A-Za-z0-9.-]{10,}"),
    _token_format("xapp-", r"\d-[A-Za-z0-9-]{10,}"),
    _token_format("AKIA", r"[A-Z0-9]{12,}"),
    _token_format("ASIA", r"[A-Z0-9]{12,}"),
    _token_format("IQoJb3JpZ2lu", r"[A-Za-z0-9+/=]{60,}"),
    _token_format("ABSK", r"[A-Za-z0-9+/=]{100,}"),
    _token_format("AIza", r"[A-Za-z0-9_-]{30,}"),
    _token_format("GOCSPX-", r"[A-Za-z0-9_-]{20,}"),
    _token_format("ya29.", r"[A-Za-z0-9_-]{20,}"),
    _token_format("1//0", r"[A-Za-z0-9_-]{30,}"),
    _token_format("npm_", r"[A-Za-z0-9]{30,}"),
    _token_format("dapi", r"[0-9a-f]{32}"),
    _token_format("pypi-Ag", r"[A-Za-z0-9_-]{14,}"),
    _token_format("lin_api_", r"[A-Za-z0-9]{16,}"),
    _token_format("sk_", r"(?:live|test)_[A-Za-z0-9]{16,}"),
    _token_format("rk_", r"(?:live|test)_[A-Za-z0-9]{16,}"),
    _token_format("SG.", r"[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
    _token_format("r8_", r"[A-Za-z0-9]{30,}"),
    _token_format("nvapi-", r"[A-Za-z0-9_-]{16,}"),
    _token_format("wandb_v1_", r"[A-Za-z0-9_]{16,}"),
    _token_format("eyJ", r"[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
    _token_format("gsk_", r"[A-Za-z0-9]{20,}"),
    _token_format("xai-", r"[A-Za-z0-9]{20,}"),
    _token_format("pplx-", r"[A-Za-z0-9]{20,}"),
    _token_format("fw_", r"(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{20,}"),
    _token_format("tvly-", r"[A-Za-z0-9-]{20,}"),
    _token_format("jina_", r"[A-Za-z0-9_-]{32,}"),
    _token_format("lsv2_", r"(?:pt|sk)_[0-9a-f_]{32,}"),
    _token_format("do", r"[opr]_v1_[0-9a-f]{32,}", "_v1_"),
    _token_format("hv", r"[sbr]\.[A-Za-z0-9_-]{20,}", "hvs.", "hvb.", "hvr."),
    SecretFormat("tokens", (".atlasv1.",), r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{40,}"),
    _token_format("tskey-", r"[a-z]+-[A-Za-z0-9-]{12,}"),
    _token_format("AGE-SECRET-KEY-", r"[A-Z0-9]{40,}"),
    _token_format("dckr_", r"[po]at_[A-Za-z0-9_-]{16,}"),
    _token_format("KGAT_", r"[A-Za-z0-9]{20,}"),
    _token_format("tk_", r"(?=[a-z]*\d)[a-z0-9]{29}(?![a-z0-9])"),
    _token_format("ntn_", r"[A-Za-z0-9]{30,}"),
    _token_format("gl", r"(?:sa_[A-Za-z0-9]{20,}_[0-9a-f]{8}|c_[A-Za-z0-9+/=]{40,})"),
    _token_format("sbp_", r"[0-9a-f]{40}"),
    _token_format("sntry", r"[su]_[A-Za-z0-9+/=_-]{40,}"),
    _token_format("shp", r"(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    _token_format("AT", r"(?:ATT|CTT)3[A-Za-z0-9_=-]{60,}", "att3", "ctt3"),
    _token_format("whsec_", r"[A-Za-z0-9+/=]{24,}"),
    _token_format("key-", r"[0-9a-f]{32}(?![0-9a-f])"),
    _token_format("LTAI", r"(?=[A-Za-z]*\d)[A-Za-z0-9]{12,}"),
    _token_format("AKID", r"(?=[A-Za-z]*\d)[A-Za-z0-9]{13,}"),
    _token_format("SK", r"[0-9a-f]{32}(?![0-9a-f])"),
    _token_format("ABIA", r"[A-Z0-9]{12,}"),
    _token_format("ACCA", r"[A-Z0-9]{12,}"),
    _token_format("A3-", r"[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}"),
    _token_format("ops_", r"eyJ[A-Za-z0-9+/=_-]{60,}"),
    _token_format("pul-", r"[0-9a-f]{40}"),
    _token_format("rubygems_", r"[0-9a-f]{48}"),
    _token_format("rdme_", r"[a-z0-9]{60,}"),
    _token_format("pscale_", r"(?:tkn|oauth|pw)_[A-Za-z0-9_.=-]{30,}"),
    _token_format("sq0", r"(?:atp|csp)-[A-Za-z0-9_-]{22,}"),
    _token_format("fm", r"[12][a-z]?_[A-Za-z0-9+/=]{60,}", "fm1", "fm2"),
    _token_format("EAA", r"(?=[A-Za-z]*\d)[A-Za-z0-9]{80,}"),
    SecretFormat("tokens", (":aa",), r"(?<![0-9])\d{8,10}:AA[A-Za-z0-9_-]{32,}"),
)  # fmt: skip

_PRIVATE_KEY_FORMATS = (
    SecretFormat(
        "private keys",
        ("private key-----",),
        (
            r"-----BEGIN [A-Z0-9 ]{0,20}PRIVATE KEY-----(?:[\s\S]*?-----END [A-Z0-9 ]{0,20}PRIVATE KEY-----|[\s\S]*)"
            # One with a truncated beginning.
            r"|(?m:^)(?:[A-Za-z0-9+/=]{1,80}\r?\n){0,80}-----END [A-Z0-9 ]{0,20}PRIVATE KEY-----"
        ),
    ),
    # PuTTY's.
    _any_case_format(
        "private keys", "private-lines", r"Private-Lines: \d+\r?\n(?P<secret>(?:[A-Za-z0-9+/=]{1,80}(?:\r?\n|$))+)"
    ),
)

_HEADER_CHARACTER_PATTERN = r"[^\s'\",;<]"
# After a scheme nearly anything; alone what has a digit, as "enabled" and "token required" are settings.
_AUTHORIZATION_FORMATS = (
    _any_case_format(
        "authorizations",
        "authorization",
        rf"authorization['\"]?\s*[:=]\s*['\"]?(?:"
        rf"(?:basic|bearer)\s+(?!tokens?\b|auth\b|[$<{{])|(?:token\s+)?(?=[^\s'\",;<\d]*\d)(?!basic\s|bearer\s))"
        rf"(?P<secret>{_HEADER_CHARACTER_PATTERN}{{4,}})",
    ),
)
_HEADER_FORMATS = (
    _any_case_format(
        "authorizations",
        "bearer",
        rf"\bbearer\s+(?P<secret>{_HEADER_CHARACTER_PATTERN}{{16,}})",
        _looks_generated,
    ),
    _any_case_format(
        "cookies", "cookie", r"\b(?:set-)?cookie['\"]?\s*:\s*['\"]?(?P<secret>[\w.-]{1,80}=[^\r\n'\"<]{4,})"
    ),
)

_URL_FORMATS = (
    SecretFormat(
        # With one slash where the address was taken for a path.
        "passwords in URLs",
        (":/",),
        r":(?:(?=//)|(?<=http:)|(?<=https:))//?[^\s/:@'\"]{0,200}:(?P<secret>[^\s/'\"<]{1,500})(?=@)",
    ),
    # A token as the user name of a URL: longer than any name. The digest of an image has the same form.
    SecretFormat("tokens in URLs", ("://",), r"://(?P<secret>[A-Za-z0-9_.~%-]{20,500})(?=@(?!sha256:))"),
)

# What follows the host of a webhook is the secret.
_WEBHOOK_PATH_PATTERN = r"(?P<secret>[^\s'\"<>\\,;)\]}]{8,})"
_WEBHOOK_FORMATS = (
    _any_case_format("webhooks", "hooks.slack", rf"//hooks\.slack(?:-gov)?\.com/{_WEBHOOK_PATH_PATTERN}"),
    _any_case_format(
        "webhooks", "discord", rf"//(?:[a-z]+\.)?discord(?:app)?\.com/api/(?:v\d+/)?webhooks/{_WEBHOOK_PATH_PATTERN}"
    ),
    _any_case_format("webhooks", "office.com", rf"//[\w.-]*office\.com/webhook\w*/{_WEBHOOK_PATH_PATTERN}"),
    _any_case_format("webhooks", "api.telegram.org", rf"//api\.telegram\.org/(?:file/)?bot{_WEBHOOK_PATH_PATTERN}"),
    _any_case_format("webhooks", "hc-ping.com", rf"//hc-ping\.com/{_WEBHOOK_PATH_PATTERN}"),
    # Of any server: below its address, not in the path of a file.
    _any_case_format(
        "webhooks",
        "hook/ hooks/",
        r"://[^\s'\"<>]{1,200}?hooks?/(?=[\w-]*\d)(?P<secret>[\w-]{20,}[^\s'\"<>]*)",
        _looks_generated,
    ),
)

_BASE64_CHARACTER_PATTERN = r"[A-Za-z0-9+/]"
_HEX_KEY_PATTERN = r"(?<![0-9a-z])(?P<secret>[0-9a-f]{%d})(?![0-9a-z])"
_AWS_KEY_FORMATS = (
    # After its id.
    SecretFormat(
        "keys of AWS",
        ("akia", "asia"),
        rf"A[KS]IA[A-Z0-9]{{16}}[^\r\n]{{1,40}}?(?<!{_BASE64_CHARACTER_PATTERN})(?P<secret>{_BASE64_CHARACTER_PATTERN}{{40}})(?![A-Za-z0-9+/=])",
    ),
)
# A commit of git has the form of a key.
_NOT_A_COMMIT_PATTERN = r"(?:(?!commit|revision|snapshot|hash|head|sha|git|[/@])[^\r\n])"
_NEARBY_WORD_FORMATS = (
    SecretFormat(
        "keys of Twilio",
        ("ac",),
        rf"(?<![A-Za-z0-9])AC[0-9a-f]{{32}}[^\r\n0-9a-f][^\r\n]{{0,60}}?{_HEX_KEY_PATTERN % 32}",
    ),
    _any_case_format(
        "keys of wandb",
        "wandb login api",
        rf"(?:wandb|api[ _-]?key|login){_NOT_A_COMMIT_PATTERN}{{0,60}}?{_HEX_KEY_PATTERN % 40}",
    ),
    _any_case_format(
        "keys of Kaggle",
        "username",
        r"username['\"]?\s*[:=]\s*['\"]?[^\s'\",]{1,80}['\"]?[\s,]{1,9}['\"]?key['\"]?\s*[:=]\s*['\"]?"
        r"(?P<secret>[0-9a-f]{32})",
    ),
    _any_case_format(
        "keys of Pushover",
        "pushover",
        r"pushover[^\r\n]{0,80}?(?<![a-z0-9])(?P<secret>[uag](?=[a-z]*\d)[a-z0-9]{29})(?![a-z0-9])",
    ),
    _any_case_format(
        "seeds",
        "totp 2fa otp mfa",
        r"\b(?:totp|2fa|otp|mfa)\b(?:[ _-]?(?:seed|secret|key|code))?['\"]?(?:\s*[:=]|\s+is)?\s*['\"]?"
        # Words in capitals have no digit.
        r"(?P<secret>(?-i:(?=[A-Z]*[2-7])[A-Z2-7]{16,64}))(?![A-Za-z0-9])",
    ),
    # A name and a blank.
    SecretFormat(
        "values of secret names",
        ("key", "token", "secret", "passw"),
        (
            r"(?:[Kk]ey|KEY|[Tt]oken|TOKEN|[Ss]ecret|SECRET|[Pp]asswor?d|PASSWOR?D)['\"]?\s{1,4}['\"]?(?:is\s)?"
            r"(?P<secret>[A-Za-z0-9+/_-]{24,}={0,2})(?![A-Za-z0-9+/_-])"
        ),
        looks_random,
    ),
    # In a sentence: after a colon any, else what no word is.
    _any_case_format(
        "passwords",
        "passw passphrase",
        r"\b(?:password|passwd|passphrase)\s+(?:is|was)\s*[:=]\s*['\"]?(?P<secret>[^\s'\"<*$]{3,})",
    ),
    _any_case_format(
        "passwords",
        "passw passphrase",
        r"\b(?:password|passwd|passphrase)\s+(?:is|was)\s+['\"]?"
        r"(?P<secret>(?=[^\s'\"]*\d)(?=[^\s'\"]*[a-z])[^\s'\"<*$]{6,})",
    ),
    _any_case_format(
        "values of secret names",
        "token secret key",
        r"\b(?:token|secret|api[ _-]?key)\s+(?:is|was)\s*[:=]\s*['\"]?"
        r"(?P<secret>(?=[^\s'\"]*\d)(?=[^\s'\"]*[a-z])[^\s'\"<*$]{8,})",
    ),
    # .netrc and .pgpass.
    _any_case_format(
        "passwords",
        "machine default",
        r"\b(?:machine\s+[\w-]+(?:\.[\w-]+)+|(?:machine\s+\S+|default)(?:\s+(?:login|account)\s+\S+){1,2})"
        r"(?:\s+(?:login|account)\s+\S+){0,2}\s+password\s+(?P<secret>\S+)",
    ),
    SecretFormat(
        "passwords",
        (":",),
        # The ports of PostgreSQL and of its poolers: a line of a program has the same form.
        r"(?m:^)[\w.*-]{1,200}(?<!\.py)(?<!\.cc)(?<!\.cu)(?<!\.cpp):(?:[56]4\d\d|\*):[\w.*-]{1,100}:[\w.*-]{1,100}:"
        r"(?P<secret>\S{1,200})(?m:$)",
        _is_more_than_numbers,
    ),
)

# Passwords in commands: the words of a line, or of a list in JSON or Python. A variable of the shell is no secret.
_WORDS_BETWEEN_PATTERN = r"[^\r\n;|&]{0,200}?[\s'\"]"
_OPTION_SEPARATOR_PATTERN = r"(?:=|\s+|['\"],\s*)"
_QUOTED_PATTERN = r"'[^'\r\n]+'|\"[^\"\r\n]+\""
_OPTION_VALUE_PATTERN = rf"(?P<secret>{_QUOTED_PATTERN}|[^\s'\",;|&<$-][^\s'\",;|&<]*)"
_USER_COLON_PATTERN = (
    r"(?P<secret>'[^'\r\n]*:[^'\r\n]*'|\"[^\"\r\n]*:[^\"\r\n]*\"|[^\s'\",:;|&<$-][^\s'\",:;|&<]*:[^\s'\",;|&<]*)"
)


def _command_format(
    programs: str,
    options: str,
    value: str = _OPTION_VALUE_PATTERN,
    *,
    separator: str = _OPTION_SEPARATOR_PATTERN,
    accepts_match: Callable[[str], bool] = _is_more_than_numbers,
) -> SecretFormat:
    alternatives = "|".join(map(re.escape, programs.split()))
    pattern = rf"(?<![\w.-])(?:{alternatives})(?![\w.]){_WORDS_BETWEEN_PATTERN}(?:{options}){separator}{value}"
    return SecretFormat("passwords in commands", tuple(programs.split()), pattern, accepts_match)


_COMMAND_FORMATS = (
    _command_format(
        "mysql mysqldump mysqladmin mysqlimport mariadb mariadb-dump",
        "-p",
        separator="",
        accepts_match=_is_not_end_of_option_name,
    ),
    _command_format(
        "curl", r"-[A-Za-z]{0,6}[uU]|--user|--proxy-user", _USER_COLON_PATTERN, separator=r"(?:=|\s*|['\"],\s*)"
    ),
    _command_format("sshpass", "-p", separator=rf"(?:{_OPTION_SEPARATOR_PATTERN})?", accepts_match=bool),
    _command_format("redis-cli", "-a|--pass"),
    _command_format(
        "mongo mongosh mongodump mongorestore mongoimport mongoexport",
        "-p",
        separator=rf"(?:{_OPTION_SEPARATOR_PATTERN})?",
    ),
    SecretFormat(
        "passwords in commands",
        ("login", "upload"),
        r"(?<![\w.-])(?:docker|podman|nerdctl|buildah|skopeo|helm|oras|apptainer|singularity|az|oc|twine)"
        rf"(?:['\",\s]{{1,4}}(?:registry|acr))?['\",\s]{{1,4}}(?:login|upload)(?![\w.]){_WORDS_BETWEEN_PATTERN}-p{_OPTION_SEPARATOR_PATTERN}{_OPTION_VALUE_PATTERN}",
        _is_more_than_numbers,
    ),
    _command_format("7z 7za 7zz", "-p", separator="", accepts_match=_is_not_end_of_option_name),
    _command_format("zip unzip", "-P", separator=rf"(?:{_OPTION_SEPARATOR_PATTERN})?"),
    _command_format("ldapsearch ldapmodify ldapadd", "-w"),
    _command_format("openssl", "pass:", separator=""),
    _command_format("lftp", "-u", r"['\"]?[^\s,'\"]+,(?P<secret>[^\s'\"]+)"),
    _command_format("smbclient rpcclient", "-U", r"['\"]?[^\s%'\"]+%(?P<secret>[^\s'\"]+)"),
    # Passed to the standard input of what follows.
    _any_case_format(
        "passwords in commands",
        "sudo login",
        rf"\becho\s+(?:-\w+\s+)*(?P<secret>{_QUOTED_PATTERN}|[^\s'\"|$]+)\s*\|\s*(?:sudo\s+(?:-\w+\s+)*-\w*S|\w+\s+login)\b",
    ),
)

# Values of which no format is known. Not parts of paths and of base64 text, nor keys and digests that are public.
POSSIBLY_SECRET_FORMATS = (
    SecretFormat(
        "random values",
        ("",),
        r"(?<![A-Za-z0-9_+/-])(?<!SHA256:)(?<!sha256:)(?<!sha256=)(?<!base64,)(?!AAAA)"
        r"[A-Za-z0-9_-]{24,200}(?![A-Za-z0-9_+/-])",
        looks_random,
    ),
    # The secret of AWS alone.
    SecretFormat(
        "random values",
        ("",),
        rf"(?<![A-Za-z0-9+/=_.%-])(?!/){_BASE64_CHARACTER_PATTERN}{{40}}(?![A-Za-z0-9+/=_.%-])",
        looks_random,
    ),
)
# What stands beside another format comes before that one.
SECRET_FORMATS = (
    *_PRIVATE_KEY_FORMATS,
    *_AWS_KEY_FORMATS,
    *_WEBHOOK_FORMATS,
    *_TOKEN_FORMATS,
    *_AUTHORIZATION_FORMATS,
    *_HEADER_FORMATS,
    *_URL_FORMATS,
    *_NEARBY_WORD_FORMATS,
    *_COMMAND_FORMATS,
)
# They need no words around them that other texts have too.
SURELY_SECRET_FORMATS = (
    *_PRIVATE_KEY_FORMATS,
    *_WEBHOOK_FORMATS,
    *_TOKEN_FORMATS,
    *_AUTHORIZATION_FORMATS,
    *_URL_FORMATS,
)
# In a command a program's option for a password proves it, which among the arguments of a training is another one's.
SURELY_SECRET_COMMAND_FORMATS = (*SURELY_SECRET_FORMATS, *_HEADER_FORMATS, *_COMMAND_FORMATS)
