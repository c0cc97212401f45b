//! How the types that cross are made: a struct that may get fields, an enum that may get variants.

/// A struct whose fields may become more: non-exhaustive, with a method to set each field.
macro_rules! open_struct {
    ($(#[$meta:meta])* pub struct $name:ident { $( $(#[$doc:meta])* pub $field:ident: $type:ty, )* }) => {
        $(#[$meta])*
        #[non_exhaustive]
        pub struct $name { $( $(#[$doc])* pub $field: $type, )* }

        impl $name { $(
            #[doc = concat!("The same with this `", stringify!($field), "`.")]
            #[must_use]
            pub fn $field(mut self, $field: $type) -> Self {
                self.$field = $field;
                self
            }
        )* }
    };
}

/// An enum whose variants may become more. It crosses as `{"name": value}`; a name that is not known is kept as
/// `Unknown`, whose doc comment says what that means.
macro_rules! open_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident { $( $(#[$doc:meta])* $variant:ident($type:ty) = $tag:literal, )* }
        $(#[$unknown:meta])*
        Unknown
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum $name {
            $( $(#[$doc])* $variant($type), )*
            $(#[$unknown])*
            Unknown(String),
        }

        impl $name {
            /// The names of all that this version knows.
            pub const NAMES: &'static [&'static str] = &[$($tag),*];

            /// Its name, as it crosses.
            pub fn name(&self) -> &str {
                match self {
                    $( Self::$variant(_) => $tag, )*
                    Self::Unknown(name) => name,
                }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut map = serde::Serializer::serialize_map(serializer, Some(1))?;
                match self {
                    $( Self::$variant(value) => serde::ser::SerializeMap::serialize_entry(&mut map, $tag, value)?, )*
                    Self::Unknown(name) => serde::ser::SerializeMap::serialize_entry(&mut map, name, &())?,
                }
                serde::ser::SerializeMap::end(map)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct One;

                impl<'de> serde::de::Visitor<'de> for One {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str(concat!("one of `", stringify!($name), "`, by its name"))
                    }

                    fn visit_str<E>(self, name: &str) -> Result<$name, E> {
                        Ok($name::Unknown(name.to_owned()))
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<$name, A::Error> {
                        let name: Option<std::borrow::Cow<'de, str>> = map.next_key()?;
                        let name = name.ok_or_else(|| serde::de::Error::invalid_length(0, &self))?;
                        Ok(match name.as_ref() {
                            $( $tag => $name::$variant(map.next_value()?), )*
                            _ => {
                                map.next_value::<serde::de::IgnoredAny>()?;
                                $name::Unknown(name.into_owned())
                            }
                        })
                    }
                }

                deserializer.deserialize_any(One)
            }
        }
    };
}

/// The methods of one object, by their names.
macro_rules! methods {
    ($(#[$meta:meta])* pub enum $name:ident { $( $variant:ident = $tag:literal, )* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $name { $( $variant, )* }

        // Without a host, each side of some object is on the other side.
        #[cfg_attr(not(feature = "host"), allow(dead_code))]
        impl $name {
            pub(crate) const NAMES: &'static [&'static str] = &[$($tag),*];

            pub(crate) fn name(self) -> &'static str {
                match self { $( Self::$variant => $tag, )* }
            }

            /// The method of this name.
            ///
            /// # Errors
            /// [`EngineError::UnknownMethod`](crate::EngineError::UnknownMethod): it is of a later version.
            pub(crate) fn called(name: &str) -> Result<Self, crate::EngineError> {
                match name {
                    $( $tag => Ok(Self::$variant), )*
                    _ => Err(crate::EngineError::UnknownMethod(name.to_owned())),
                }
            }
        }
    };
}
