from shardward.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ScoreRequest(_message.Message):
    __slots__ = ("request_id", "rollouts", "step", "mode", "tokenizer_fingerprint", "caller", "reward_fns_digest")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ROLLOUTS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    REWARD_FNS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    rollouts: _types_pb2.RolloutBatch
    step: int
    mode: _types_pb2.Mode
    tokenizer_fingerprint: str
    caller: str
    reward_fns_digest: str
    def __init__(self, request_id: _Optional[str] = ..., rollouts: _Optional[_Union[_types_pb2.RolloutBatch, _Mapping]] = ..., step: _Optional[int] = ..., mode: _Optional[_Union[_types_pb2.Mode, str]] = ..., tokenizer_fingerprint: _Optional[str] = ..., caller: _Optional[str] = ..., reward_fns_digest: _Optional[str] = ...) -> None: ...

class ScoreResponse(_message.Message):
    __slots__ = ("request_id", "rewards", "row_ids")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    REWARDS_FIELD_NUMBER: _ClassVar[int]
    ROW_IDS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    rewards: _types_pb2.RewardBatch
    row_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, request_id: _Optional[str] = ..., rewards: _Optional[_Union[_types_pb2.RewardBatch, _Mapping]] = ..., row_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class ScoringServiceGetInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ScoringServiceGetInfoResponse(_message.Message):
    __slots__ = ("info",)
    INFO_FIELD_NUMBER: _ClassVar[int]
    info: _types_pb2.ServiceInfo
    def __init__(self, info: _Optional[_Union[_types_pb2.ServiceInfo, _Mapping]] = ...) -> None: ...
